import { afterEach, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../../src/bots/bot.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { expectProblem } from '../../harness/clients/call.ts';
import { ask, operationAt } from '../../harness/clients/operation-requests.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { total } from '../../harness/relay/metric-samples.ts';
import { CANARY } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import { plainAnswer, type RawRequest, wholeStream } from '../../harness/service/raw-upstream.ts';

const BOTH_KEYS = {
  UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
  OPERATIONS: OPERATION_GROUPS.join(),
  METRICS_PORT: '9090',
};
const FEEDBACK = operationAt('POST message/feedback');
const MESSAGE = operationAt('POST message/sse');
/** Without forms, which are sent once only. */
const PROXIED = OPERATIONS.filter(({ carriedBy, takesFile }) => carriedBy === 'proxy' && !takesFile);

let pair: RelayAndUpstream;
afterEach(() => pair.close());

const isMessage = ({ requestLine }: RawRequest) => requestLine.includes('/message/sse');
const keyOf = ({ all }: RawRequest) => all('x-api-key')[0];

/** Starts a service that takes every message, and answers an operation with the key so. */
async function start(answerTo: (key: string | undefined) => string) {
  pair = await startWithSandboxes(
    (socket, request) =>
      void socket.write(isMessage(request) ? wholeStream('data: a\n\n') : answerTo(keyOf(request))),
    BOTH_KEYS,
  );
}

describe('a 403 of the service to an operation', () => {
  test('says nothing about the keys if one other key gets it too: it may be about what the page asks for', async () => {
    await start(() => jsonAnswer('403 Forbidden', { error: 'no' }));
    expectProblem(await ask(pair, FEEDBACK), 403, 'upstream_refused', { upstream: { error: 'no' } });
    expect(pair.upstream.requests.map(keyOf)).toEqual([CANARY.key, CANARY.secondKey]);
    await ask(pair, MESSAGE);
    expect(keyOf(pair.upstream.requests[2] as RawRequest)).toBe(CANARY.key);
    expect(pair.relay.logs).not.toContainEqual(expect.objectContaining({ msg: 'upstream key rejected' }));
  });

  test.each(PROXIED)(
    'to $method $path is followed by one other key, which all use from then on',
    async (operation) => {
      await start((key) => (key === CANARY.key ? plainAnswer('403 No', []) : jsonAnswer('200 OK', {})));
      const before = pair.upstream.requests.length;
      expect((await ask(pair, operation)).status).toBe(200);
      expect((await ask(pair, MESSAGE)).status).toBe(200);
      const keys = pair.upstream.requests.slice(before).map(keyOf);
      expect(keys).toEqual([CANARY.key, CANARY.secondKey, CANARY.secondKey]);
    },
  );
});

const KEYS = { first: CANARY.key, second: CANARY.secondKey };
const OK = jsonAnswer('200 OK', {});
const NO = { 401: plainAnswer('401 No', []), 403: plainAnswer('403 No', []) };

test.each([
  ['an operation', FEEDBACK, OK],
  ['a message', MESSAGE, wholeStream('data: a\n\n')],
])('the metrics count 401 and 403 to %s', async (_what, operation, good) => {
  const counted = async (first: string, second: string | Buffer) => {
    const answers: Record<string, string | Buffer> = { [KEYS.first]: first, [KEYS.second]: second };
    pair = await startRelayAndUpstream(
      (socket, request) => void socket.write(answers[keyOf(request) ?? ''] ?? ''),
      BOTH_KEYS,
    );
    await ask(pair, operation);
    const text = await pair.relay.metricsText();
    await pair.close();
    const of = (outcome: string) => total(text, 'bot_relay_upstream_responses_total', { outcome });
    return { key_rejected: of('key_rejected'), forbidden: of('forbidden') };
  };
  expect(await counted(NO[401], good)).toEqual({ key_rejected: 1, forbidden: 0 });
  expect(await counted(NO[401], NO[401])).toEqual({ key_rejected: 2, forbidden: 0 });
  expect(await counted(NO[403], NO[403])).toEqual({ key_rejected: 0, forbidden: 2 });
  // It counts as a 403 when it comes, and as a rejected key when the other one is accepted.
  expect(await counted(NO[403], good)).toEqual({ key_rejected: 1, forbidden: 1 });
});

test('does not say maybeStarted when the service is gone after a refused key', async () => {
  pair = await startRelayAndUpstream((socket) => {
    socket.end(plainAnswer('401 No', ['Connection: close']), () => void pair.upstream.close());
  }, BOTH_KEYS);
  expectProblem(await ask(pair, FEEDBACK), 502, 'upstream_unreachable', { retryable: 'new message' });
  expect(pair.upstream.requests).toHaveLength(1);
});

test('a 401 of the service to an operation refuses the key for all', async () => {
  await start((key) => (key === CANARY.key ? plainAnswer('401 No', []) : jsonAnswer('200 OK', {})));
  expect((await ask(pair, FEEDBACK)).status).toBe(200);
  expect((await ask(pair, MESSAGE)).status).toBe(200);
  const keys = pair.upstream.requests.map(keyOf);
  expect(keys).toEqual([CANARY.key, CANARY.secondKey, CANARY.secondKey]);
});
