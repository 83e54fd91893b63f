import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
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
const TEXT = 'data: a\n\n';
/** A stream that breaks after this is resumed. */
const BEGUN = SOON + INIT + KEPT;

const folder = mkdtempSync(join(tmpdir(), 'bot-relay-keys-'));
afterAll(() => rmSync(folder, { recursive: true }));
const fileWith = (name: string, content: string) => {
  const file = join(folder, name);
  writeFileSync(file, content);
  return file;
};

let pair: RelayAndUpstream | undefined;
afterEach(async () => {
  await pair?.close();
  pair = undefined;
});

/** What the service answers to each key: bytes or a status; a stream if it is not here. */
type Answers = Record<string, string | number>;
interface Setup {
  readonly keys?: number;
  readonly environment?: Record<string, string>;
  /** Whether messages begin with any key, and break: then `answers` are those to their resumptions. */
  readonly resumed?: boolean;
}

async function start(answers: Answers, { keys = 2, environment = {}, resumed = false }: Setup = {}) {
  const own = await startRelayAndUpstream(
    (socket, request) => {
      const answer = answers[request.all('x-api-key')[0] ?? ''];
      if (resumed && request.all('last-event-id').length === 0) breaks(BEGUN)(socket, request);
      else if (typeof answer === 'number')
        socket.write(
          plainAnswer(`${answer} No`, ['WWW-Authenticate: leak', 'Content-Type: text/plain'], 'leak'),
        );
      else socket.write(answer ?? wholeStream(resumed ? DONE : TEXT));
    },
    { CHANNELS: 'shared', UPSTREAM_API_KEYS: KEYS.slice(0, keys).join(), ...environment },
  );
  pair = own;
  const { relay, upstream, cookie } = own;
  const logged = (msg: string) => relay.logs.filter((line) => line.msg === msg);
  return {
    ...own,
    async send(path?: string) {
      const response = await relay.send(cookie, path === undefined ? {} : { path });
      const text = await response.text();
      expectNoCanary(text);
      expect(text).not.toContain('leak');
      expect(response.headers.get('www-authenticate')).toBeNull();
      const failure = text.startsWith('event: error\n') ? errorEventIn(text) : undefined;
      return { response, text, failure, status: failure?.status ?? response.status };
    },
    logged,
    tried: (from = 0) => upstream.requests.slice(from).flatMap(({ all }) => all('x-api-key')),
    keysAndIds: () => upstream.requests.map(({ all }) => [all('x-api-key'), all('last-event-id')].flat()),
    rejected: () => logged('upstream key rejected').map(({ keyFingerprint }) => keyFingerprint),
    line: () => relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper'),
  };
}

const KEY_REJECTED = { status: 502, code: 'upstream_key_rejected', retryable: 'new message' };
const REFUSED = { status: 403, code: 'upstream_refused', retryable: false };
const MAY_NOT = { upstream: { error: { text: '[secret] may not' } } };
const forbidden = jsonAnswer('403 No', { error: { text: `${A} may not` } });
type Row = [
  title: string,
  Answers,
  keys: number,
  failure: object | undefined,
  tried: string[],
  rejected: string[],
];
const ROWS: Row[] = [
  ['401 to the first key is followed by the next', { [A]: 401 }, 2, undefined, [A, B], [A]],
  ['403 to the first key is followed by the next', { [A]: 403 }, 2, undefined, [A, B], [A]],
  ['401 to the only key is a bad gateway', { [A]: 401 }, 1, KEY_REJECTED, [A], [A]],
  ['401 to every key, each tried once', { [A]: 401, [B]: 401 }, 2, KEY_REJECTED, [A, B], [A, B]],
  // The service has refused the message, and not the keys.
  ['403 to two keys', { [A]: forbidden, [B]: forbidden }, 3, { ...REFUSED, ...MAY_NOT }, [A, B], []],
  ['403 to the only key, which stays good', { [A]: 403 }, 1, REFUSED, [A], []],
  ['403 and then 401', { [A]: 403, [B]: 401 }, 3, REFUSED, [A, B], [B]],
  ['401 and then 403: one more is tried', { [A]: 401, [B]: 403 }, 3, undefined, [A, B, C], [A, B]],
  ['500: a second key is not tried', { [A]: 500 }, 2, { code: 'upstream_bad_response' }, [A], []],
];

test.each(ROWS)('the service answers a message with %s', async (...row) => {
  const [, answers, keys, failure, keysTried, keysRejected] = row;
  const { send, tried, rejected, logged, upstream } = await start(answers, { keys });
  const answer = await send();
  if (failure) expect(answer.failure).toMatchObject(failure);
  else expect([answer.status, answer.text]).toEqual([200, TEXT]);
  expect(answer.failure?.maybeStarted).toBe(answers[A] === 500 ? true : undefined);
  expect(tried()).toEqual(keysTried);
  expect(rejected()).toEqual(keysRejected.map(fingerprint));
  const requestId = answer.response.headers.get('x-request-id');
  for (const line of logged('upstream key rejected'))
    expect(line).toMatchObject({ level: 'warn', requestId });
  expect(new Set(upstream.requests.map(({ body }) => String(body)))).toEqual(new Set([MESSAGE]));
  // The next message begins with a key that was not refused, if there is one.
  await send();
  const good = KEYS.slice(0, keys).find((key) => !keysRejected.includes(key)) ?? A;
  expect(tried(keysTried.length)[0]).toBe(good);
});

describe('a key that was refused', () => {
  const LONG = { RATE_WINDOW_MS: '600000' };

  test('costs one message a second request, with a slot of its own, and is logged once, as is the key that works', async () => {
    const environment = { ...LONG, RATE_LIMIT: '4', RATE_MAX_WAIT_MS: '0' };
    const { send, tried, relay } = await start({ [A]: 401 }, { environment });
    for (const status of [200, 200, 200, 429]) expect((await send()).status).toBe(status);
    expect(tried()).toEqual([A, B, B, B]);
    const keyRing = 'acme/helper';
    expect(relay.logs.filter(({ msg }) => String(msg).startsWith('upstream key '))).toMatchObject([
      { level: 'warn', msg: 'upstream key rejected', keyRing, keyFingerprint: fingerprint(A) },
      { level: 'info', msg: 'upstream key accepted', keyRing, keyFingerprint: fingerprint(B) },
    ]);
  });

  test('is tried again when all other keys are refused too, and is then the first again', async () => {
    const answers: Answers = { [A]: 401, [B]: 401 };
    const { send, tried } = await start(answers);
    expect((await send()).status).toBe(502);
    delete answers[A];
    for (let n = 0; n < 2; n += 1) expect((await send()).status).toBe(200);
    expect(tried()).toEqual([A, B, A, A]);
  });

  test('is not tried again by a message whose next key gets 429, which gives up in time', async () => {
    const answers: Answers = { [A]: 401, [B]: 401 };
    const { send, tried } = await start(answers, { environment: { RATE_MAX_WAIT_MS: '1500' } });
    // From now on all keys are refused ones.
    expect((await send()).status).toBe(502);
    answers[B] = plainAnswer('429 Busy', ['Retry-After: 1']);
    expect((await send()).status).toBe(429);
    const [first, ...others] = tried(2);
    expect([first, ...new Set(others)]).toEqual([A, B]);
  });

  test('does not lose its message, which waits for another slot, even if RATE_MAX_WAIT_MS is 0', async () => {
    const environment = { RATE_LIMIT: '1', RATE_WINDOW_MS: '500', RATE_MAX_WAIT_MS: '0' };
    const { send, tried, relay, line } = await start({ [A]: 401 }, { environment });
    const asked = jest.spyOn(relay.parts.budgets, 'start');
    const from = performance.now();
    expect((await send()).status).toBe(200);
    expect(performance.now() - from).toBeGreaterThanOrEqual(500);
    expect(tried()).toEqual([A, B]);
    // On a busy machine much of the window may be over when the refusal comes.
    const extra = asked.mock.calls.findIndex(([, ticket]) => ticket.endsWith('+'));
    const waitMs = (await asked.mock.results[extra]?.value) as number;
    expect((await line()).slotWaitMs).toBeGreaterThanOrEqual(Math.floor(waitMs) - 1);
  });

  test('is not followed by another if the client leaves during that wait', async () => {
    const environment = { ...LONG, RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '600000' };
    const { ask, relay, rejected, tried, line } = await start({ [A]: 401 }, { environment });
    const client = ask();
    await until(() => rejected().length === 1);
    client.socket.destroy();
    expect(await line()).toMatchObject({ status: 499 });
    await relay.untilOpen(0);
    expect(tried()).toEqual([A]);
  });
});

describe('a stream whose resumption is refused', () => {
  test('goes on with the next key, in the same attempt and with one more slot, and later messages begin with it', async () => {
    const environment = { RATE_LIMIT: '5', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' };
    const { send, keysAndIds, logged, rejected } = await start({ [A]: 403 }, { resumed: true, environment });
    for (let n = 0; n < 2; n += 1) expect((await send()).text).toBe(BEGUN + DONE);
    expect(keysAndIds()).toEqual([[A], [A, '7'], [B, '7'], [B], [B, '7']]);
    expect(logged('stream resumption')).toMatchObject(Array(2).fill({ attempt: 1, outcome: 'resumed' }));
    expect(rejected()).toEqual([fingerprint(A)]);
    expect((await send()).status).toBe(429);
  });

  test.each([401, 403])('with %i to every key, each tried once, ends truthfully', async (status) => {
    const { send, keysAndIds, logged, rejected, relay } = await start(
      { [A]: status, [B]: status },
      { resumed: true },
    );
    const { text } = await send();
    expect(text.slice(0, BEGUN.length)).toBe(BEGUN);
    expect(errorEventIn(text.slice(BEGUN.length))).toMatchObject({ code: 'upstream_stream_broken' });
    expect(keysAndIds()).toEqual([[A], [A, '7'], [B, '7']]);
    expect(logged('stream resumption')).toMatchObject([
      { level: 'warn', attempt: 1, outcome: 'key_rejected', cause: `status ${status}` },
    ]);
    expect(rejected()).toHaveLength(status === 401 ? 2 : 0);
    expect(relay.parts.held.bytes()).toBe(0);
  });

  test('is resumed with the keys of now, if they were replaced since it began', async () => {
    const file = fileWith('keys', A);
    const own = await startRelayAndUpstream(
      (socket, request) => {
        if (request.all('last-event-id').length > 0) socket.write(wholeStream(DONE));
        else opens(BEGUN)(socket, request);
      },
      { UPSTREAM_API_KEYS: '', UPSTREAM_API_KEYS_FILE: file },
    );
    pair = own;
    const answer = await own.relay.send(own.cookie);
    await until(() => own.upstream.requests.length === 1);
    writeFileSync(file, B);
    await until(() => own.relay.logs.some(({ msg }) => String(msg).startsWith('reloaded')));
    own.upstream.sockets[0]?.end();
    expect(await answer.text()).toBe(BEGUN + DONE);
    expect(own.upstream.requests.map(({ all }) => all('x-api-key'))).toEqual([[A], [B]]);
  });
});

describe('a bot with settings of its own', () => {
  const pathOf = (bot: string) => `/generic/ns/acme/bot-provider/${bot}/message/sse`;
  const bots = fileWith(
    'bots.json',
    JSON.stringify({ 'acme/own': { keys: [B], rateLimit: 3 }, 'acme/limited': { rateLimit: 1 } }),
  );
  const limits = { RATE_LIMIT: '2', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' };
  const environment = { BOTS: 'acme/*', BOTS_FILE: bots, ...limits };

  test('uses its keys only, and its own limit, which is told; other bots have the common ones', async () => {
    const { send, tried } = await start({}, { keys: 1, environment });
    const found: Record<string, unknown> = {};
    for (const bot of ['own', 'limited', 'helper']) {
      const before = tried().length;
      const answers = [];
      for (let n = 0; n < 4; n++) answers.push(await send(pathOf(bot)));
      const told = answers.at(-1)?.response.headers.get('ratelimit-policy');
      found[bot] = [answers.map(({ status }) => status), told, ...new Set(tried(before))];
    }
    expect(found).toEqual({
      own: [[200, 200, 200, 429], '"endpoint";q=3;w=600', B],
      limited: [[200, 429, 429, 429], '"endpoint";q=1;w=600', A],
      helper: [[200, 200, 429, 429], '"endpoint";q=2;w=600', A],
    });
  });

  test('does not fall back to the common keys', async () => {
    const { send, tried } = await start({ [B]: 401 }, { keys: 1, environment });
    expect((await send(pathOf('own'))).failure).toMatchObject(KEY_REJECTED);
    expect(tried()).toEqual([B]);
  });

  test('shows neither its keys nor those of others in a refusal of the service', async () => {
    const refused = jsonAnswer('400 No', { message: `${B} is not ${A}` });
    const { send } = await start({ [A]: refused, [B]: refused }, { keys: 1, environment });
    for (const bot of ['own', 'helper'])
      expect((await send(pathOf(bot))).failure?.upstream).toEqual({ message: '[secret] is not [secret]' });
  });
});

describe('the keys of a ring', () => {
  const [a, b, c] = [secret('key-a'), secret('key-b'), secret('key-c')];
  let now = 1_000;
  const clock = () => now;
  const ringWith = (...keys: (typeof a)[]) => keyRing({ name: 'acme/helper', keys, now: clock });

  test('have a refused one at its place again after a while, for one message at a time', () => {
    const ring = ringWith(a, b);
    ring.refused(a);
    now += REFUSED_FOR_MS - 1;
    expect(ring.order()).toEqual([b, a]);
    now += 1;
    expect(ring.order()).toEqual([a, b]);
    // Other messages do not wait for the result.
    expect(ring.order()).toEqual([b, a]);
    ring.refused(a);
    now += REFUSED_FOR_MS - 1;
    expect(ring.order()).toEqual([b, a]);
    ring.tryRefusedAgain();
    expect(ring.order()).toEqual([a, b]);
    ring.worked(a);
    for (let n = 0; n < 2; n++) expect(ring.order()).toEqual([a, b]);
  });

  test('keep the try of one after one that works for later', () => {
    const ring = ringWith(a, b);
    ring.refused(b);
    now += REFUSED_FOR_MS;
    expect(ring.order()).toEqual([a, b]);
    ring.refused(a);
    // Key b is tried at once, since its try was not used.
    expect(ring.order()).toEqual([a, b]);
  });

  test('keep their states in the next ring, and a new one is tried at once', () => {
    const before = ringWith(a, b);
    before.refused(a);
    const keys = [c, secret('key-a'), b];
    const after = keyRing({ name: 'acme/helper', keys, before: before.states, now: clock });
    const order = () =>
      after.order().map(({ fingerprint }) => [a, b, c].findIndex((key) => key.fingerprint === fingerprint));
    expect(order()).toEqual([2, 1, 0]);
    // A message that uses the previous ring still counts.
    before.worked(a);
    expect(order()).toEqual([2, 0, 1]);
  });

  const own = { 'acme/own': { keys: [b] }, '*/echo': { keys: [c] }, 'other/slow': { rateLimit: 1 } };
  const make = () =>
    keyRings({ settings: { apiKeys: [a], own }, bots: ['acme/*', 'acme/exact', 'other/*'], now: clock });

  test('are those of the narrowest name, each ring with its own states', () => {
    const rings = make();
    const found = ['acme/exact', 'acme/some', 'acme/own', 'acme/echo', 'other/echo', 'other/slow'].map(
      (bot) => {
        const { name, keys } = rings.ringOf(bot);
        return [name, keys];
      },
    );
    expect(found).toEqual([
      ...[
        ['acme/exact', [a]],
        ['acme/*', [a]],
        ['acme/own', [b]],
      ],
      ...[
        ['*/echo', [c]],
        ['*/echo', [c]],
        ['other/slow', [a]],
      ],
    ]);
    expect(rings.keys()).toEqual([a, b, c]);
    const two = keyRings({ settings: { apiKeys: [a, b], own: {} }, bots: ['x/one', 'x/two'], now: clock });
    two.ringOf('x/one').refused(a);
    expect(['x/one', 'x/two'].map((bot) => two.ringOf(bot).order())).toEqual([
      [b, a],
      [a, b],
    ]);
  });

  test('are those of new settings at once, but a message keeps the ring that it began with', () => {
    const rings = make();
    const begun = rings.ringOf('acme/own');
    rings.use({ apiKeys: [c, a], own: { 'acme/own': { keys: [c, b] } } });
    expect(begun.order()).toEqual([b]);
    expect(rings.ringOf('acme/echo')).toMatchObject({ name: 'acme/*', keys: [c, a] });
    expect(rings.all()).toHaveLength(4);
    begun.refused(b);
    rings.use({ apiKeys: [a], own: { 'acme/own': { keys: [b, c] } } });
    expect(rings.ringOf('acme/own').order()).toEqual([c, b]);
  });

  test('are masked, the longer first, also if they are the whole text', () => {
    const mask = maskKeys(['key', 'longer-key', 'key-2'].map(secret));
    const masked = ['[secret]', 'a [secret]-2', '[secret]', 'ke', ''];
    expect(['key', 'a longer-key-2', 'key-2', 'ke', ''].map(mask)).toEqual(masked);
    expect(maskKeys([])('text')).toBe('text');
  });
});
