import { afterEach, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../../src/bots/operation-groups.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { expectProblem } from '../../support/call.ts';
import { startWithSandboxes } from '../../support/launched-sandboxes.ts';
import { total } from '../../support/metric-samples.ts';
import { ask, operationAt } from '../../support/operation-requests.ts';
import { type RawRequest, wholeStream } from '../../support/raw-upstream.ts';
import { CANARY } from '../../support/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../../support/relay-and-upstream.ts';
import { jsonAnswer } from '../../support/suspend.ts';

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
  test('says nothing about the keys: it may be about what the page asks for', async () => {
    await start(() => plainAnswer('403 Forbidden', []));
    expectProblem(await ask(pair, FEEDBACK), 502, 'upstream_key_rejected');
    expect(pair.upstream.requests.map(keyOf)).toEqual([CANARY.key, CANARY.secondKey]);
    await ask(pair, MESSAGE);
    expect(keyOf(pair.upstream.requests[2] as RawRequest)).toBe(CANARY.key);
    expect(pair.relay.logs).not.toContainEqual(expect.objectContaining({ msg: 'upstream key rejected' }));
  });

  test('is followed by the next key, and changes nothing for other requests', async () => {
    await start((key) => (key === CANARY.key ? plainAnswer('403 No', []) : jsonAnswer('200 OK', {})));
    for (const operation of PROXIED) {
      const before = pair.upstream.requests.length;
      expect((await ask(pair, operation)).status).toBe(200);
      expect((await ask(pair, MESSAGE)).status).toBe(200);
      const keys = pair.upstream.requests.slice(before).map(keyOf);
      expect(keys).toEqual([CANARY.key, CANARY.secondKey, CANARY.key]);
    }
  });
});

test.each([
  ['401', 'an operation', FEEDBACK, 'scoped', 'key_rejected'],
  ['403', 'an operation', FEEDBACK, 'scoped', '4xx'],
  ['403', 'the question for a conversation', MESSAGE, 'owned', '4xx'],
  ['403', 'a message', MESSAGE, 'scoped', 'key_rejected'],
])('the metrics count a %s to %s', async (status, _what, operation, CHANNELS, outcome) => {
  pair = await startRelayAndUpstream((socket) => void socket.write(plainAnswer(`${status} No`, [])), {
    ...BOTH_KEYS,
    CHANNELS,
  });
  await ask(pair, operation);
  const name = 'bot_relay_upstream_responses_total';
  const text = await pair.relay.metricsText();
  expect([total(text, name), total(text, name, { outcome })]).toEqual([2, 2]);
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
