import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { keyRing, REFUSED_FOR_MS } from '../../src/relay/upstream/key-ring.ts';
import { keyRings } from '../../src/relay/upstream/key-rings.ts';
import { maskKeys } from '../../src/relay/upstream/upstream-request.ts';
import { secret } from '../../src/secret.ts';
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
    expect((await send()).status).toBe(502);
    delete answers[A];
    for (let n = 0; n < 2; n += 1) expect((await send()).status).toBe(200);
    expect(tried()).toEqual([A, B, A, A]);
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

  test('takes a slot of the budget, since its request reaches the service', async () => {
    const environment = { RATE_LIMIT: '4', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' };
    await start({ [A]: refusal(401) }, { environment });
    // The first message needs two slots; each of the others needs one.
    for (const status of [200, 200, 200, 429]) expect((await send()).status).toBe(status);
    expect(tried()).toHaveLength(4);
  });

  test('does not lose its message, which waits for another slot, even if RATE_MAX_WAIT_MS is 0', async () => {
    const environment = { RATE_LIMIT: '1', RATE_WINDOW_MS: '500', RATE_MAX_WAIT_MS: '0' };
    await start({ [A]: refusal(401) }, { environment });
    const asked = jest.spyOn(pair.relay.budgets, 'start');
    const from = performance.now();
    expect((await send()).status).toBe(200);
    expect(performance.now() - from).toBeGreaterThanOrEqual(500);
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
    const environment = { RATE_LIMIT: '1', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '600000' };
    await start({ [A]: refusal(401) }, { environment });
    const client = pair.ask();
    await until(() => rejected().length === 1);
    client.socket.destroy();
    const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
    expect(line).toMatchObject({ status: 499 });
    await until(() => pair.relay.open.count() === 0);
    expect(tried()).toEqual([A]);
  });
});

const keysAndIds = () =>
  pair.upstream.requests.map(({ all }) => [all('x-api-key'), all('last-event-id')].flat());

test('a stream whose resumption is refused goes on with the next key, in the same attempt, and later messages begin with it', async () => {
  await start({ [A]: refusal(403) }, { resumed: true });
  expect((await send()).text).toBe(BEGUN + DONE);
  const first = [[A], [A, '7'], [B, '7']];
  expect(keysAndIds()).toEqual(first);
  expect(logged('stream resumption')).toMatchObject([{ attempt: 1, outcome: 'resumed' }]);
  expect(rejected()).toEqual([fingerprint(A)]);
  expect((await send()).text).toBe(BEGUN + DONE);
  expect(keysAndIds()).toEqual([...first, [B], [B, '7']]);
});

test.each([401, 403])(
  'a stream whose resumption is answered %i to every key, each tried once, ends truthfully',
  async (status) => {
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
  },
);

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

describe('own keys', () => {
  const pathOf = (bot: string) => `/generic/ns/acme/bot-provider/${bot}/message/sse`;

  let folder: string;
  let pair: RelayAndUpstream;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'bot-relay-own-'));
  });
  afterEach(async () => {
    await pair.close();
    rmSync(folder, { recursive: true });
  });

  const OWN = {
    'acme/own': { keys: [CANARY.secondKey], rateLimit: 3 },
    'acme/limited': { rateLimit: 1 },
  };

  /** Starts a relay with the bots file `own`, and an upstream that answers with `answer`. */
  async function start(own: object, environment = {}, answer: string | Buffer = wholeStream('data: a\n\n')) {
    writeFileSync(join(folder, 'bots.json'), JSON.stringify(own));
    pair = await startRelayAndUpstream((socket) => void socket.write(answer), {
      BOTS: 'acme/*',
      BOTS_FILE: join(folder, 'bots.json'),
      RATE_WINDOW_MS: '600000',
      RATE_MAX_WAIT_MS: '0',
      ...environment,
    });
  }

  async function ask(bot: string) {
    const response = await pair.relay.send(pair.cookie, { path: pathOf(bot) });
    return { status: response.status, headers: response.headers, text: await response.text() };
  }

  describe('a bot with its own keys', () => {
    test('uses only those; other bots use the common keys', async () => {
      await start(OWN);
      for (const bot of ['own', 'helper', 'limited']) expect((await ask(bot)).status).toBe(200);
      expect(pair.upstream.requests.map(({ all }) => all('x-api-key'))).toEqual([
        [CANARY.secondKey],
        [CANARY.key],
        [CANARY.key],
      ]);
    });

    test('does not fall back to the common keys', async () => {
      await start(OWN, {}, plainAnswer('401 No', []));
      expect(errorEventIn((await ask('own')).text)).toMatchObject({
        code: 'upstream_key_rejected',
        status: 502,
      });
      expect(pair.upstream.requests.map(({ all }) => all('x-api-key'))).toEqual([[CANARY.secondKey]]);
    });

    test('shows neither its keys nor those of others in a refusal of the service', async () => {
      const body = JSON.stringify({ message: `${CANARY.secondKey} is not ${CANARY.key}` });
      await start(OWN, {}, plainAnswer('400 No', ['Content-Type: application/json'], body));
      for (const bot of ['own', 'helper']) {
        const { text } = await ask(bot);
        expectNoCanary(text);
        expect(errorEventIn(text).upstream).toEqual({ message: '[secret] is not [secret]' });
      }
    });
  });

  test("a bot's own rate limit is kept and told to clients; other bots have the common limit", async () => {
    await start(OWN, { RATE_LIMIT: '2' });
    const statuses: Record<string, number[]> = {};
    for (const bot of ['own', 'limited', 'helper']) {
      statuses[bot] = [];
      for (let n = 0; n < 4; n++) statuses[bot].push((await ask(bot)).status);
    }
    expect(statuses).toEqual({
      own: [200, 200, 200, 429],
      limited: [200, 429, 429, 429],
      helper: [200, 200, 429, 429],
    });
    const told = async (bot: string) => (await ask(bot)).headers.get('ratelimit-policy');
    expect(await told('own')).toBe('"endpoint";q=3;w=600');
    expect(await told('limited')).toBe('"endpoint";q=1;w=600');
    expect(await told('helper')).toBe('"endpoint";q=2;w=600');
  });
});

describe('the order of keys', () => {
  const [a, b, c] = [secret('key-a'), secret('key-b'), secret('key-c')];

  let now: number;
  beforeEach(() => {
    now = 1_000;
  });
  const clock = () => now;
  const ringWith = (...keys: (typeof a)[]) => keyRing({ name: 'acme/helper', keys, now: clock });

  describe('a key ring', () => {
    test('puts a refused key at its configured position again after a while, for one message at a time', () => {
      const ring = ringWith(a, b);
      ring.refused(a);
      now += REFUSED_FOR_MS - 1;
      expect(ring.order()).toEqual([b, a]);
      now += 1;
      expect(ring.order()).toEqual([a, b]);
      // Other messages do not wait for the result.
      expect(ring.order()).toEqual([b, a]);
      now += REFUSED_FOR_MS;
      expect(ring.order()).toEqual([a, b]);
      ring.refused(a);
      now += REFUSED_FOR_MS - 1;
      expect(ring.order()).toEqual([b, a]);
    });

    test('keeps the try of a key after one that works for later', () => {
      const ring = ringWith(a, b);
      ring.refused(b);
      now += REFUSED_FOR_MS;
      expect(ring.order()).toEqual([a, b]);
      ring.refused(a);
      // Key b is tried at once, since its try was not used.
      expect(ring.order()).toEqual([a, b]);
    });

    test('takes over the states of keys that stay, and tries a new key at once', () => {
      const before = ringWith(a, b);
      before.refused(a);
      const after = keyRing({
        name: 'acme/helper',
        keys: [c, secret('key-a'), b],
        before: before.states,
        now: clock,
      });
      expect(after.order().map(({ fingerprint }) => fingerprint)).toEqual(
        [c, b, a].map(({ fingerprint }) => fingerprint),
      );
      // A message that uses the previous ring still counts.
      before.worked(a);
      expect(after.order()[1]?.fingerprint).toBe(a.fingerprint);
    });
  });

  describe('the rings of all bots', () => {
    const own = { 'acme/own': { keys: [b] }, '*/echo': { keys: [c] }, 'other/slow': { rateLimit: 1 } };
    const make = () =>
      keyRings({ settings: { apiKeys: [a], own }, bots: ['acme/*', 'acme/exact', 'other/*'], now: clock });

    test.each([
      ['acme/exact', 'acme/exact', a],
      ['acme/some', 'acme/*', a],
      ['acme/own', 'acme/own', b],
      ['acme/echo', '*/echo', c],
      ['other/echo', '*/echo', c],
      ['other/slow', 'other/slow', a],
    ])('%s has the ring %s', (bot, name, key) => {
      const ring = make().ringOf(bot);
      expect(ring.name).toBe(name);
      expect(ring.order()).toEqual([key]);
    });

    test('have separate states, since a key may work for one bot and not for another', () => {
      const rings = keyRings({
        settings: { apiKeys: [a, b], own: {} },
        bots: ['x/one', 'x/two'],
        now: clock,
      });
      rings.ringOf('x/one').refused(a);
      expect(rings.ringOf('x/one').order()).toEqual([b, a]);
      expect(rings.ringOf('x/two').order()).toEqual([a, b]);
    });

    test('use new settings at once, but a message keeps the ring that it began with', () => {
      const rings = make();
      const begun = rings.ringOf('acme/own');
      rings.use({ apiKeys: [c, a], own: { 'acme/own': { keys: [c, b] } } });
      expect(begun.order()).toEqual([b]);
      expect(rings.ringOf('acme/own').order()).toEqual([c, b]);
      expect(rings.ringOf('acme/echo')).toMatchObject({ name: 'acme/*', keys: [c, a] });
      expect(rings.all()).toHaveLength(4);
      begun.refused(b);
      rings.ringOf('acme/own').worked(c);
      expect(rings.ringOf('acme/own').order()).toEqual([c, b]);
      rings.use({ apiKeys: [a], own: { 'acme/own': { keys: [b, c] } } });
      expect(rings.ringOf('acme/own').order()).toEqual([c, b]);
    });
  });

  test('keys are masked, the longer first, also if they are the whole text', () => {
    const mask = maskKeys(['key', 'longer-key', 'key-2'].map(secret));
    expect(['key', 'a longer-key-2', 'key-2', 'ke', ''].map(mask)).toEqual([
      ...['[secret]', 'a [secret]-2', '[secret]', 'ke', ''],
    ]);
    expect(maskKeys([])('text')).toBe('text');
  });
});
