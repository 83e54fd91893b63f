import {
  appendFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type FileChanges, fileChanges } from '../../src/bots/file-changes.ts';
import { secret } from '../../src/secret.ts';
import { call } from '../harness/clients/call.ts';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { ALL_BUT_INTERVALS } from '../harness/clock/intervals.ts';
import { until } from '../harness/clock/until.ts';
import { samplesOf, total } from '../harness/relay/metric-samples.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
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
  folder = freshFolder();
  valid = new Set([CANARY.key, CANARY.secondKey]);
});
afterEach(async () => {
  await pair?.close();
  await stopProcesses();
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
/** Resolves once so many reloads have failed. */
const failed = (times = 1) => until(() => logged('reload failed').length === times);
const fingerprint = (key: string) => secret(key).fingerprint;

describe('a file of keys that changes', () => {
  test('is used from the next message on, and that is logged once, by fingerprints', async () => {
    await startWithKeys(`${CANARY.key}\n`);
    expect(await keyOf()).toBe(CANARY.key);
    put('keys', `${CANARY.secondKey}\n${CANARY.key}\n`);
    await reloaded();
    expect(await keyOf()).toBe(CANARY.secondKey);
    const keys = [CANARY.secondKey, CANARY.key].map(fingerprint);
    expect(logged('reloaded')).toMatchObject([{ level: 'info', settings: { keys, own: {} } }]);
    put('keys', CANARY.key);
    await until(() => logged('reloaded').length >= 2);
    expect(logged('reloaded')).toHaveLength(2);
  });

  test('has series at 0 for its new keys, so that the first refusal is an increase', async () => {
    await start({ UPSTREAM_API_KEYS_FILE: put('keys', CANARY.key) });
    put('keys', `${CANARY.secondKey}\n${CANARY.key}\n`);
    await reloaded();
    const key = fingerprint(CANARY.secondKey);
    const known = samplesOf(await pair.relay.metricsText()).filter(({ labels }) => labels.key === key);
    expect(known.map(({ value }) => value)).toEqual(known.map(() => 0));
    expect(known.map(({ labels }) => labels.outcome)).toContain('key_rejected');
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
    spoil();
    await failed();
    expect(await keyOf()).toBe(CANARY.key);
    put('keys', CANARY.secondKey);
    await reloaded();
    expect(logged('reload failed')).toMatchObject([{ level: 'error', problems: [problem] }]);
  });

  test('is counted as a failed reload and named in the log, and a usable one is counted as ok', async () => {
    await start({
      UPSTREAM_API_KEYS: CANARY.key,
      BOTS_FILE: put('bots.json', { 'acme/own': { rateLimit: 7 } }),
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
    await reloaded();
    expect(await counts()).toEqual([1, 1, 1]);
    put('bots.json', { 'acne/*': { rateLimit: 5 } });
    await failed(2);
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
    const limit = async () =>
      (await pair.relay.send(pair.cookie, { path: OWN_PATH })).headers.get('ratelimit-policy');
    expect(await ready()).toEqual({ status: 200, checks: { accepting: 'ok' } });
    put('bots.json', '{"acme/own": {"keys": ["canary-api-key');
    await failed();
    expect(await ready()).toEqual({
      status: 200,
      checks: { accepting: 'ok', configuration: 'last reload failed' },
    });
    expect(await limit()).toBe('"endpoint";q=7;w=1');
    put('bots.json', { 'acme/own': { rateLimit: 8 } });
    await reloaded();
    expect(await ready()).toEqual({ status: 200, checks: { accepting: 'ok' } });
    expect(await limit()).toBe('"endpoint";q=8;w=1');
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

  test('makes the relay watch the key files that it names, also one that is created later', async () => {
    await startWithBots({});
    put('bots.json', { 'acme/own': { keysFile: 'own-keys' } });
    await failed();
    expect(logged('reload failed')).toMatchObject([
      { problems: ['BOTS_FILE: acme/own keysFile names a file that cannot be read (ENOENT)'] },
    ]);
    put('own-keys', CANARY.key);
    await reloaded(1);
    expect(logged('reload failed')).toHaveLength(1);
    expect(await keyOf(OWN_PATH)).toBe(CANARY.key);
    put('own-keys', CANARY.secondKey);
    await reloaded(2);
    expect(await keyOf(OWN_PATH)).toBe(CANARY.secondKey);
  });
});

describe('a reload that is asked for', () => {
  test('reads the files at once, and logs its result, also if nothing has changed', async () => {
    await startWithKeys(CANARY.key);
    put('keys', CANARY.secondKey);
    pair.relay.reload();
    expect(await keyOf()).toBe(CANARY.secondKey);
    pair.relay.reload();
    expect(logged('reloaded')).toHaveLength(2);
    put('keys', '');
    pair.relay.reload();
    pair.relay.reload();
    expect(logged('reload failed')).toHaveLength(2);
    put('keys', CANARY.key);
    await reloaded(3);
    expect(logged('reload')).toHaveLength(5);
  });

  test('makes the next message try a refused key again', async () => {
    valid = new Set([CANARY.secondKey]);
    await start({ UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` });
    expect([await keyOf(), await keyOf()]).toEqual([CANARY.secondKey, CANARY.secondKey]);
    valid.add(CANARY.key);
    pair.relay.reload();
    expect(await keyOf()).toBe(CANARY.key);
    expect(logged('reload failed')).toEqual([]);
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
  pair.relay.reload();
  refuse();
  expect((await begun).status).toBe(200);
  expect(pair.upstream.requests.map(({ all }) => all('x-api-key')[0])).toEqual([
    CANARY.key,
    CANARY.secondKey,
  ]);
});

describe('a file that is watched', () => {
  const POLL_MS = 60;
  let path: string;
  let seen: string[];
  let changes: FileChanges;
  beforeEach(() => {
    path = put('keys', 'old');
    seen = [];
  });
  afterEach(() => {
    changes.close();
    jest.useRealTimers();
  });

  /** The content of the file, or why it cannot be read. */
  function content(): string {
    try {
      return readFileSync(path, 'utf8');
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? '';
    }
  }
  function begin(): void {
    const onChange = () => void seen.push(content());
    changes = fileChanges({ files: () => [path], onChange, pollEveryMs: POLL_MS });
  }
  /** Watches the file, and says when it is looked at. */
  function watchByHand(): void {
    jest.useFakeTimers({ doNotFake: [...ALL_BUT_INTERVALS] });
    begin();
    jest.advanceTimersByTime(2 * POLL_MS);
    expect(seen).toEqual(['old']);
  }
  /** Watches the file, and resolves once it has been read for the first time. */
  async function watch(): Promise<void> {
    begin();
    await until(() => seen.length === 1);
    seen = [];
  }

  test('is read again when it is written in place, replaced by a rename, deleted, and created again', async () => {
    await watch();
    writeFileSync(path, 'new');
    await until(() => seen.length === 1);
    for (const text of ['one', 'two']) {
      writeFileSync(`${path}.tmp`, text);
      renameSync(`${path}.tmp`, path);
      await until(() => seen.at(-1) === text);
    }
    unlinkSync(path);
    await until(() => seen.length === 4);
    writeFileSync(path, 'back');
    await until(() => seen.length === 5);
    expect(seen).toEqual(['new', 'one', 'two', 'ENOENT', 'back']);
  });

  test('is read again when its folder is replaced behind a symbolic link, as in Kubernetes', async () => {
    const place = (version: string, text: string) => {
      mkdirSync(join(folder, version));
      writeFileSync(join(folder, version, 'keys'), text);
      symlinkSync(version, join(folder, '..data_tmp'));
      renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
    };
    unlinkSync(path);
    place('..2026_01', 'old');
    symlinkSync('..data/keys', path);
    await watch();
    for (const [version, text] of [
      ['..2026_02', 'new'],
      ['..2026_03', 'one'],
    ] as const) {
      place(version, text);
      await until(() => seen.at(-1) === text);
    }
    expect(seen).toEqual(['new', 'one']);
  });

  test('is read when it was changed before the first poll', async () => {
    begin();
    writeFileSync(path, 'new');
    await until(() => seen.length > 0);
    expect(seen).toEqual(['new']);
  });

  test('is read by readNow at once, changed or not, and the same change causes no second read', () => {
    watchByHand();
    changes.readNow();
    expect(seen).toEqual(['old', 'old']);
    writeFileSync(path, 'new');
    changes.readNow();
    jest.advanceTimersByTime(4 * POLL_MS);
    expect(seen).toEqual(['old', 'old', 'new']);
    changes.close();
    writeFileSync(path, 'last');
    jest.advanceTimersByTime(4 * POLL_MS);
    expect(seen).toEqual(['old', 'old', 'new']);
  });

  test('is not read while it is being written', () => {
    watchByHand();
    writeFileSync(path, '');
    for (const part of 'half-written'.split('')) {
      jest.advanceTimersByTime(POLL_MS);
      appendFileSync(path, part);
    }
    jest.advanceTimersByTime(POLL_MS);
    expect(seen).toEqual(['old']);
    jest.advanceTimersByTime(POLL_MS);
    expect(seen).toEqual(['old', 'half-written']);
  });
});
