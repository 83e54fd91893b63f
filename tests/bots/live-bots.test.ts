import { mkdtempSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { until } from '../harness/clock/until.ts';
import { samplesOf, total } from '../harness/relay/metric-samples.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

const OWN_PATH = '/generic/ns/acme/bot-provider/own/message/sse';
const STREAM = wholeStream('data: a\n\n');
const REFUSAL = plainAnswer('401 No', []);

let folder: string;
let pair: RelayAndUpstream;
/** The keys that the bot service accepts. */
let valid: Set<string>;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-reload-'));
  valid = new Set([CANARY.key, CANARY.secondKey]);
});
afterEach(async () => {
  await pair.close();
  rmSync(folder, { recursive: true });
});

const put = (name: string, content: string | object) => {
  const path = join(folder, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
};

async function start(environment: Record<string, string>) {
  pair = await startRelayAndUpstream(
    (socket, { all }) => void socket.write(valid.has(all('x-api-key')[0] ?? '') ? STREAM : REFUSAL),
    { BOTS: 'acme/helper,acme/own', UPSTREAM_API_KEYS: '', ...environment },
  );
}
const startWithKeys = (text: string) => start({ UPSTREAM_API_KEYS_FILE: put('keys', text) });
const startWithBots = (own: object) =>
  start({ UPSTREAM_API_KEYS: CANARY.key, BOTS_FILE: put('bots.json', own) });

/** Sends a message; returns the key of its last request, or the status of its error event if it failed. */
async function keyOf(path?: string): Promise<string | number> {
  const response = await pair.relay.send(pair.cookie, path ? { path } : {});
  const text = await response.text();
  return text.startsWith('event: error\n')
    ? errorEventIn(text).status
    : (pair.upstream.requests.at(-1)?.all('x-api-key')[0] ?? '');
}
const logged = (msg: string) => pair.relay.logs.filter((line) => String(line.msg).startsWith(msg));
/** Resolves once the files were reloaded `times` times with success. */
const reloaded = (times = 1) => until(() => logged('reloaded').length === times);
const failed = () => until(() => pair.relay.bots.lastFailure() !== undefined);

describe('a file of keys that changes', () => {
  test('is used from the next message on', async () => {
    await startWithKeys(`${CANARY.key}\n`);
    expect(await keyOf()).toBe(CANARY.key);
    put('keys', `${CANARY.secondKey}\n${CANARY.key}\n`);
    await reloaded();
    expect(await keyOf()).toBe(CANARY.secondKey);
  });

  test('to a key that is refused works with the next key, and the refusal is logged', async () => {
    await startWithKeys(CANARY.key);
    put('keys', `bad-key,${CANARY.key}`);
    await reloaded();
    expect(await keyOf()).toBe(CANARY.key);
    expect(pair.upstream.requests.map(({ all }) => all('x-api-key')[0])).toEqual(['bad-key', CANARY.key]);
    expect(logged('upstream key rejected')).toMatchObject([
      { level: 'warn', keyFingerprint: pair.relay.bots.keyRings.keys()[0]?.fingerprint },
    ]);
  });

  test('has series at 0 for its new keys, so that the first refusal is an increase', async () => {
    await start({ UPSTREAM_API_KEYS_FILE: put('keys', CANARY.key), METRICS_PORT: '9090' });
    put('keys', `${CANARY.secondKey}\n${CANARY.key}\n`);
    await reloaded();
    const key = pair.relay.bots.keyRings.keys()[0]?.fingerprint;
    const known = samplesOf(await pair.relay.metricsText()).filter(({ labels }) => labels.key === key);
    expect(known.map(({ value }) => value)).toEqual(known.map(() => 0));
    expect(known.map(({ labels }) => labels.outcome)).toContain('key_rejected');
  });

  test('is logged once, by fingerprints', async () => {
    await startWithKeys(CANARY.key);
    put('keys', `${CANARY.secondKey},${CANARY.key}`);
    await reloaded();
    const keys = pair.relay.bots.keyRings.keys().map(({ fingerprint }) => fingerprint);
    expect(keys).toHaveLength(2);
    expect(logged('reloaded')).toMatchObject([{ level: 'info', settings: { keys, own: {} } }]);
    put('keys', CANARY.key);
    await until(() => pair.relay.bots.keyRings.keys().length === 1);
    await until(() => logged('reloaded').length >= 2);
    expect(logged('reloaded')).toHaveLength(2);
  });
});

describe('a file that cannot be used', () => {
  test.each([
    ['is empty', () => void put('keys', ''), 'UPSTREAM_API_KEYS_FILE names an empty file'],
    [
      'is gone',
      () => unlinkSync(join(folder, 'keys')),
      'UPSTREAM_API_KEYS_FILE names a file that cannot be read (ENOENT)',
    ],
    [
      'holds no keys',
      () => void put('keys', `two words\n${CANARY.secondKey} x`),
      'UPSTREAM_API_KEYS_FILE holds a value with white space or characters that no header can carry',
    ],
  ])('because it %s changes nothing, and is logged once as an error', async (_why, spoil, problem) => {
    await startWithKeys(CANARY.key);
    const before = Date.now();
    spoil();
    await failed();
    expect(await keyOf()).toBe(CANARY.key);
    expect(pair.relay.bots.lastFailure()?.problems).toEqual([problem]);
    expect(Number(pair.relay.bots.lastFailure()?.at)).toBeGreaterThanOrEqual(before);
    put('keys', CANARY.secondKey);
    await reloaded();
    expect(logged('reload failed')).toMatchObject([{ level: 'error', problems: [problem] }]);
  });

  test('is counted as a failed reload and named in the log, and a usable one is counted as ok', async () => {
    await start({
      UPSTREAM_API_KEYS: CANARY.key,
      BOTS_FILE: put('bots.json', { 'acme/own': { rateLimit: 7 } }),
      METRICS_PORT: '9090',
    });
    const counts = async () => {
      const text = await pair.relay.metricsText();
      const reloads = ['ok', 'failed'].map((outcome) => total(text, 'bot_relay_reloads_total', { outcome }));
      return [...reloads, total(text, 'bot_relay_configuration_valid')];
    };
    expect(await counts()).toEqual([0, 0, 1]);
    put('bots.json', { 'acme/own': { rateLimit: 7, ratelimits: 4, 'not-a-name-but-a-key': 1 } });
    await failed();
    expect(await counts()).toEqual([0, 1, 0]);
    const known = 'is not known: an entry has keys or keysFile, rateLimit and operations';
    expect(logged('reload failed').at(-1)?.problems).toEqual([
      `BOTS_FILE: acme/own has ratelimits, which ${known}`,
      `BOTS_FILE: acme/own has a member that ${known}`,
    ]);
    put('bots.json', { 'acme/own': { rateLimit: 8 } });
    await until(() => pair.relay.bots.lastFailure() === undefined);
    expect(await counts()).toEqual([1, 1, 1]);
    put('bots.json', { 'acne/*': { rateLimit: 5 } });
    await failed();
    expect(logged('reload failed').at(-1)?.problems).toEqual([
      'BOTS_FILE: acne/* is a bot that BOTS does not allow',
    ]);
  });

  test('is shown by /readyz, which still answers 200', async () => {
    await startWithBots({ 'acme/own': { rateLimit: 7 } });
    const ready = async () => {
      const { status, body } = await call(pair.relay.port, '/readyz');
      return { status, checks: JSON.parse(body).checks };
    };
    expect(await ready()).toEqual({ status: 200, checks: { accepting: 'ok' } });
    put('bots.json', '{"acme/own": {"keys": ["canary-api-key');
    await failed();
    expect(await ready()).toEqual({
      status: 200,
      checks: { accepting: 'ok', configuration: 'last reload failed' },
    });
    expect(pair.relay.bots.limitOf('acme/own')).toBe(7);
    put('bots.json', { 'acme/own': { rateLimit: 8 } });
    await reloaded();
    expect(await ready()).toEqual({ status: 200, checks: { accepting: 'ok' } });
    expect(pair.relay.bots.limitOf('acme/own')).toBe(8);
  });

  test('prevents the use of the other changed files too', async () => {
    const keys = put('keys', CANARY.key);
    await start({
      UPSTREAM_API_KEYS_FILE: keys,
      BOTS_FILE: put('bots.json', { 'acme/own': { rateLimit: 7 } }),
    });
    put('bots.json', { 'elsewhere/own': { rateLimit: 7 } });
    put('keys', CANARY.secondKey);
    await failed();
    expect(await keyOf()).toBe(CANARY.key);
    put('bots.json', {});
    await reloaded();
    expect(await keyOf()).toBe(CANARY.secondKey);
  });
});

describe('a bots file that changes', () => {
  test('gives a bot its own keys, and removes them again', async () => {
    await startWithBots({});
    expect(await keyOf(OWN_PATH)).toBe(CANARY.key);
    put('bots.json', { 'acme/own': { keys: [CANARY.secondKey] } });
    await reloaded(1);
    expect(await keyOf(OWN_PATH)).toBe(CANARY.secondKey);
    expect(await keyOf()).toBe(CANARY.key);
    put('bots.json', {});
    await reloaded(2);
    expect(await keyOf(OWN_PATH)).toBe(CANARY.key);
  });

  test('makes the relay watch the key files that it names', async () => {
    await startWithBots({});
    put('own-keys', CANARY.key);
    put('bots.json', { 'acme/own': { keysFile: 'own-keys' } });
    await reloaded(1);
    expect(await keyOf(OWN_PATH)).toBe(CANARY.key);
    put('own-keys', CANARY.secondKey);
    await reloaded(2);
    expect(await keyOf(OWN_PATH)).toBe(CANARY.secondKey);
  });

  test('may name a file that is created later', async () => {
    await startWithBots({});
    put('bots.json', { 'acme/own': { keysFile: 'own-keys' } });
    await failed();
    expect(pair.relay.bots.lastFailure()?.problems).toEqual([
      'BOTS_FILE: acme/own keysFile names a file that cannot be read (ENOENT)',
    ]);
    put('own-keys', CANARY.secondKey);
    await reloaded();
    expect(await keyOf(OWN_PATH)).toBe(CANARY.secondKey);
    expect(logged('reload failed')).toHaveLength(1);
  });
});

describe('reload()', () => {
  test('reads the files at once', async () => {
    await startWithKeys(CANARY.key);
    put('keys', CANARY.secondKey);
    pair.relay.bots.reload();
    expect(await keyOf()).toBe(CANARY.secondKey);
  });

  test('logs its result, also if nothing has changed', async () => {
    await startWithKeys(CANARY.key);
    pair.relay.bots.reload();
    expect(logged('reloaded')).toHaveLength(1);
    put('keys', '');
    pair.relay.bots.reload();
    pair.relay.bots.reload();
    expect(logged('reload failed')).toHaveLength(2);
    put('keys', CANARY.secondKey);
    await reloaded(2);
    expect(logged('reload')).toHaveLength(4);
  });

  test('makes the next message try a refused key again', async () => {
    valid = new Set([CANARY.secondKey]);
    await start({ UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` });
    expect([await keyOf(), await keyOf()]).toEqual([CANARY.secondKey, CANARY.secondKey]);
    valid.add(CANARY.key);
    pair.relay.bots.reload();
    expect(await keyOf()).toBe(CANARY.key);
  });

  test('does nothing without files', async () => {
    await start({ UPSTREAM_API_KEYS: CANARY.key });
    pair.relay.bots.reload();
    expect(await keyOf()).toBe(CANARY.key);
    expect(pair.relay.bots.lastFailure()).toBeUndefined();
  });
});

test('a message that has begun keeps the keys that it began with', async () => {
  valid = new Set([CANARY.secondKey]);
  let refuse = () => {};
  pair = await startRelayAndUpstream(
    (socket, { all }) => {
      if (valid.has(all('x-api-key')[0] ?? '')) socket.write(STREAM);
      else refuse = () => void socket.write(REFUSAL);
    },
    { UPSTREAM_API_KEYS: '', UPSTREAM_API_KEYS_FILE: put('keys', `${CANARY.key},${CANARY.secondKey}`) },
  );
  const begun = pair.relay.send(pair.cookie);
  await until(() => pair.upstream.requests.length === 1);
  put('keys', 'another-key');
  pair.relay.bots.reload();
  refuse();
  expect((await begun).status).toBe(200);
  expect(pair.upstream.requests.map(({ all }) => all('x-api-key')[0])).toEqual([
    CANARY.key,
    CANARY.secondKey,
  ]);
});
