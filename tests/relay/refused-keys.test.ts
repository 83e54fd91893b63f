import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { CANARY, expectNoCanary, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { breaks, DONE, INIT, KEPT, opens, SOON } from '../harness/service/broken-answers.ts';
import { plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

const KEYS = [CANARY.key, CANARY.secondKey, 'third-key-of-this-test'] as const;
const [A, B, C] = KEYS;
const fingerprint = (key: string) => createHash('sha256').update(key).digest('hex').slice(0, 8);
const refusal = (status: number) =>
  plainAnswer(`${status} No`, ['WWW-Authenticate: leak', 'Content-Type: text/plain'], 'leak');
const STREAM = wholeStream('data: a\n\n');
const BEGUN = SOON + INIT + KEPT;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** What the service answers to each key; a stream if it is not here. */
type Answers = Record<string, string | Buffer>;
interface Setup {
  readonly keys?: number;
  readonly environment?: Record<string, string>;
  /** Whether messages begin with any key, and break: then `answers` are those to their resumptions. */
  readonly resumed?: boolean;
}
async function start(answers: Answers, { keys = 2, environment = {}, resumed = false }: Setup = {}) {
  pair = await startRelayAndUpstream(
    (socket, request) => {
      const key = request.all('x-api-key')[0] ?? '';
      if (resumed && request.all('last-event-id').length === 0) breaks(BEGUN)(socket, request);
      else socket.write(answers[key] ?? (resumed ? wholeStream(DONE) : STREAM));
    },
    { CHANNELS: 'shared', UPSTREAM_API_KEYS: KEYS.slice(0, keys).join(), ...environment },
  );
}

async function send() {
  const response = await pair.relay.send(pair.cookie);
  const text = await response.text();
  expectNoCanary(text);
  expect(text).not.toContain('leak');
  expect(response.headers.get('www-authenticate')).toBeNull();
  const failure = text.startsWith('event: error\n') ? errorEventIn(text) : undefined;
  return { response, text, failure, status: failure?.status ?? response.status };
}
const tried = (from = 0) => pair.upstream.requests.slice(from).flatMap(({ all }) => all('x-api-key'));
const logged = (msg: string) => pair.relay.logs.filter((line) => line.msg === msg);
const rejected = () => logged('upstream key rejected').map(({ keyFingerprint }) => keyFingerprint);

const KEY_REJECTED = { status: 502, code: 'upstream_key_rejected', retryable: 'new message' };
const REFUSED = { status: 403, code: 'upstream_refused', retryable: false };
const MAY_NOT = { upstream: { error: { text: '[secret] may not' } } };
const forbidden = jsonAnswer('403 No', { error: { text: `${A} may not` } });
type Row = [
  title: string,
  answers: Answers,
  keys: number,
  failure: object | undefined,
  tried: string[],
  rejected: string[],
];
const ROWS: Row[] = [
  ['401 to the first key is followed by the next', { [A]: refusal(401) }, 2, undefined, [A, B], [A]],
  ['403 to the first key is followed by the next', { [A]: refusal(403) }, 2, undefined, [A, B], [A]],
  ['401 to the only key is a bad gateway', { [A]: refusal(401) }, 1, KEY_REJECTED, [A], [A]],
  [
    '401 to every key, each tried once',
    { [A]: refusal(401), [B]: refusal(401) },
    2,
    KEY_REJECTED,
    [A, B],
    [A, B],
  ],
  // The service has refused the message, and not the keys.
  [
    '403 to two keys, of which no third is tried',
    { [A]: forbidden, [B]: forbidden },
    3,
    { ...REFUSED, ...MAY_NOT },
    [A, B],
    [],
  ],
  ['403 to the only key, which stays good', { [A]: refusal(403) }, 1, REFUSED, [A], []],
  ['403 and then 401', { [A]: refusal(403), [B]: refusal(401) }, 3, REFUSED, [A, B], [B]],
  [
    '401 and then 403, after which one more is tried',
    { [A]: refusal(401), [B]: refusal(403) },
    3,
    undefined,
    [A, B, C],
    [A, B],
  ],
];

describe('the service answers a message with', () => {
  test.each(ROWS)('%s', async (_title, answers, keys, failure, keysTried, keysRejected) => {
    await start(answers, { keys });
    const answer = await send();
    if (failure) expect(answer.failure).toMatchObject(failure);
    else expect([answer.status, answer.text]).toEqual([200, 'data: a\n\n']);
    expect(answer.failure ?? {}).not.toHaveProperty('maybeStarted');
    expect(tried()).toEqual(keysTried);
    expect(rejected()).toEqual(keysRejected.map(fingerprint));
    const requestId = answer.response.headers.get('x-request-id');
    for (const line of logged('upstream key rejected'))
      expect(line).toMatchObject({ level: 'warn', requestId });
    expect(new Set(pair.upstream.requests.map(({ body }) => String(body)))).toEqual(new Set([MESSAGE]));
    // The next message begins with a key that was not refused, if there is one.
    await send();
    const good = KEYS.slice(0, keys).find((key) => !keysRejected.includes(key)) ?? A;
    expect(tried(keysTried.length)[0]).toBe(good);
  });

  test('any other failure: a second key is not tried', async () => {
    await start({ [A]: plainAnswer('500 No', []) });
    expect((await send()).failure).toMatchObject({ code: 'upstream_bad_response', maybeStarted: true });
    expect(tried()).toEqual([A]);
  });
});

describe('a key that was refused', () => {
  test('costs one message a second request, and is logged once; so is the key that works', async () => {
    await start({ [A]: refusal(401) });
    for (let n = 0; n < 3; n += 1) expect((await send()).status).toBe(200);
    expect(tried()).toEqual([A, B, B, B]);
    const told = pair.relay.logs.filter(({ msg }) => String(msg).startsWith('upstream key '));
    const keyRing = 'acme/helper';
    expect(told).toMatchObject([
      { level: 'warn', msg: 'upstream key rejected', keyRing, keyFingerprint: fingerprint(A) },
      { level: 'info', msg: 'upstream key accepted', keyRing, keyFingerprint: fingerprint(B) },
    ]);
  });

  test('is tried again when all other keys are refused too, and is then the first again', async () => {
    const answers: Answers = { [A]: refusal(401), [B]: refusal(401) };
    await start(answers);
    expect([(await send()).status, (await send()).status]).toEqual([502, 502]);
    delete answers[A];
    expect((await send()).status).toBe(200);
    const before = tried().length;
    expect((await send()).status).toBe(200);
    expect(tried(before)).toEqual([A]);
  });

  test('is not tried again by a message whose next key gets 429, which gives up in time', async () => {
    const answers: Answers = { [A]: refusal(401), [B]: refusal(401) };
    await start(answers, { environment: { RATE_MAX_WAIT_MS: '1500' } });
    // From now on all keys are refused ones.
    expect((await send()).status).toBe(502);
    answers[B] = plainAnswer('429 Busy', ['Retry-After: 1']);
    const before = tried().length;
    expect((await send()).status).toBe(429);
    const [first, ...others] = tried(before);
    expect([first, ...new Set(others)]).toEqual([A, B]);
  });

  const ONE_SLOT = { RATE_LIMIT: '1', RATE_WINDOW_MS: '1500' };

  test('takes a slot of the budget, since its request reaches the service', async () => {
    const environment = { RATE_LIMIT: '4', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' };
    await start({ [A]: refusal(401) }, { environment });
    // The first message needs two slots; each of the others needs one.
    for (const status of [200, 200, 200, 429]) expect((await send()).status).toBe(status);
    expect(tried()).toHaveLength(4);
  });

  test('does not lose its message, which waits for another slot, even if RATE_MAX_WAIT_MS is 0', async () => {
    await start({ [A]: refusal(401) }, { environment: { ...ONE_SLOT, RATE_MAX_WAIT_MS: '0' } });
    const asked = jest.spyOn(pair.relay.budgets, 'start');
    const from = performance.now();
    expect((await send()).status).toBe(200);
    expect(performance.now() - from).toBeGreaterThanOrEqual(1_500);
    expect(tried()).toEqual([A, B]);
    // On a busy machine much of the window may be over when the refusal comes.
    const extra = asked.mock.calls.findIndex(([, ticket]) => ticket.endsWith('+'));
    const waitMs = (await asked.mock.results[extra]?.value) as number;
    const { slotWaitMs } = await pair.relay.logLine(
      ({ msg, bot }) => msg === 'request' && bot === 'acme/helper',
    );
    expect(slotWaitMs).toBeGreaterThanOrEqual(Math.floor(waitMs) - 1);
  });

  test('is not followed by another if the client leaves during that wait', async () => {
    await start({ [A]: refusal(401) }, { environment: { ...ONE_SLOT, RATE_MAX_WAIT_MS: '15000' } });
    const client = pair.ask();
    await until(() => tried().length === 1);
    client.socket.destroy();
    const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
    expect(line).toMatchObject({ status: 499 });
    // The next message gets the slot that was given back.
    expect((await send()).status).toBe(200);
    expect(tried()).toEqual([A, B]);
  });
});

const keysAndIds = () =>
  pair.upstream.requests.map(({ all }) => [all('x-api-key'), all('last-event-id')].flat());

describe.each([401, 403])('a stream whose resumption is answered %i', (status) => {
  test('goes on with the next key, in the same attempt, and later messages begin with that key', async () => {
    await start({ [A]: refusal(status) }, { resumed: true });
    expect((await send()).text).toBe(BEGUN + DONE);
    const first = [[A], [A, '7'], [B, '7']];
    expect(keysAndIds()).toEqual(first);
    const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
    const { requestId } = line;
    expect(line).toMatchObject({ outcome: 'ok', resumptions: 1 });
    expect(logged('stream resumption')).toMatchObject([{ requestId, attempt: 1, outcome: 'resumed' }]);
    expect(logged('upstream key rejected')).toMatchObject([
      { requestId, level: 'warn', keyFingerprint: fingerprint(A) },
    ]);
    const accepted = logged('upstream key accepted').map(({ keyFingerprint }) => keyFingerprint);
    expect(accepted).toEqual([A, B].map(fingerprint));
    expect((await send()).text).toBe(BEGUN + DONE);
    expect(keysAndIds()).toEqual([...first, [B], [B, '7']]);
  });

  test('ends truthfully if every key is refused, each after one try', async () => {
    await start({ [A]: refusal(status), [B]: refusal(status) }, { resumed: true });
    const { text } = await send();
    expect(text.slice(0, BEGUN.length)).toBe(BEGUN);
    expect(errorEventIn(text.slice(BEGUN.length))).toMatchObject({ code: 'upstream_stream_broken' });
    expect(keysAndIds()).toEqual([[A], [A, '7'], [B, '7']]);
    expect(logged('stream resumption')).toMatchObject([
      { level: 'warn', attempt: 1, outcome: 'key_rejected', cause: `status ${status}` },
    ]);
    expect(rejected()).toHaveLength(status === 401 ? 2 : 0);
    expect(pair.relay.held.bytes()).toBe(0);
  });
});

test('each key that is tried for a resumption takes a slot of the budget', async () => {
  const environment = { RATE_LIMIT: '3', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' };
  await start({ [A]: refusal(401) }, { resumed: true, environment });
  expect((await send()).text).toBe(BEGUN + DONE);
  expect((await pair.relay.send(pair.cookie)).status).toBe(429);
  expect(pair.upstream.requests).toHaveLength(3);
});

test('a stream is resumed with the keys of now, if they were replaced since it began', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-keys-'));
  const file = join(folder, 'keys');
  writeFileSync(file, A);
  try {
    pair = await startRelayAndUpstream(
      (socket, request) => {
        if (request.all('last-event-id').length > 0) socket.write(wholeStream(DONE));
        else opens(BEGUN)(socket, request);
      },
      { UPSTREAM_API_KEYS: '', UPSTREAM_API_KEYS_FILE: file },
    );
    const answer = await pair.relay.send(pair.cookie);
    await until(() => pair.relay.open.count() === 1 && pair.upstream.requests.length === 1);
    writeFileSync(file, B);
    await until(() => pair.relay.logs.some(({ msg }) => String(msg).startsWith('reloaded')));
    pair.upstream.sockets[0]?.end();
    expect(await answer.text()).toBe(BEGUN + DONE);
    expect(keysAndIds()).toEqual([[A], [B, '7']]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
