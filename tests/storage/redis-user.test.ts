import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { keysCommand } from '../../src/commands/keys.ts';
import { loadConfig } from '../../src/config/config.ts';
import { call } from '../harness/clients/call.ts';
import { bodyOf, EVENTS, INIT, WHOLE } from '../harness/clients/joining.ts';
import { CHANNEL, jsonAnswer, SUSPEND_PATH } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { sectionOf } from '../harness/documents/markdown.ts';
import { ROOT, readSources } from '../harness/documents/sources.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { startTlsRedis, type TlsRedis } from '../harness/redis/redis-tls.ts';
import { checkEnvironment, runCheck } from '../harness/relay/check.ts';
import { type JoinInstances, startJoinInstances, statesOfNames } from '../harness/relay/join-instances.ts';
import { freshFolder, inFrontOf, stopProcesses } from '../harness/relay/process.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { makeAuthority, removeAuthorities } from '../harness/service/authority.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const PASSWORD = 'canary-redis-word';
const SECTION = sectionOf(readFileSync(`${ROOT}/docs/deploy.md`, 'utf8'), '### Redis over a network');
/** The line of the user as the documentation has it. */
const [LINE = ''] = /^user bot-relay .*$/m.exec(SECTION) ?? [];

describe('the rights of the user of Redis in the documentation', () => {
  test('are the commands that the relay sends, and no others', () => {
    const library = readFileSync(createRequire(import.meta.url).resolve('rate-limit-redis'), 'utf8');
    const sources = readSources('src').map(({ text }) => text);
    const ofScripts = [...sources, library].flatMap((text) =>
      [...text.matchAll(/redis\.p?call\(["']([A-Z]+)["']/g)].map(([, name = '']) => name.toLowerCase()),
    );
    const ofClient = sources
      .filter((text) => /@redis\/client|storage\/redis\.ts|redis-link\.ts/.test(text))
      .flatMap((text) => [...text.matchAll(/\b(?:client|server)\??\.([a-zA-Z]+)\(/g)])
      .map(([, name = '']) => name.toLowerCase())
      .filter((name) => !['close', 'connect', 'destroy', 'on', 'once', 'open', 'sendcommand'].includes(name));
    // The store of the library sends these by name.
    const sent = new Set([...ofScripts, ...ofClient, 'decr', 'del']);
    const rights = LINE.split(' ').filter((word) => /^[+-]/.test(word));
    expect(rights[0]).toBe('-@all');
    expect(rights.slice(1)).toEqual([...sent].sort().map((name) => `+${name}`));
  });
});

describeWithRedis('the user of Redis in the documentation', () => {
  let redis: TlsRedis;
  let environment: Record<string, string>;
  let all: JoinInstances | undefined;
  let upstream: RawUpstream | undefined;
  beforeAll(async () => {
    const authority = makeAuthority();
    const aclFile = `${freshFolder({ 'users.acl': `${LINE.replace('>PASSWORD', `>${PASSWORD}`)}\n` })}/users.acl`;
    const options = ['--aclfile', aclFile];
    redis = await startTlsRedis(authority.issue('IP:127.0.0.1'), { options });
    environment = { REDIS_URL: redis.url(`bot-relay:${PASSWORD}`), REDIS_TLS_CA: authority.cert };
  });
  afterEach(async () => {
    const refused = await redis.server.command('ACL', 'LOG');
    await all?.close();
    await upstream?.close();
    all = undefined;
    upstream = undefined;
    // No test finds the runs or the slots of another one.
    await redis.server.command('FLUSHALL');
    await redis.server.command('ACL', 'LOG', 'RESET');
    expect(refused).toEqual([]);
  });
  afterAll(async () => {
    removeAuthorities();
    await stopProcesses([PASSWORD]);
  });

  /** Two instances; the service begins each stream, and has nothing to stop. */
  const start = (more: Record<string, string> = {}) =>
    startJoinInstances(2, { ...environment, ...more }, ({ requestLine }, socket) => {
      if (requestLine.includes('/message/sse')) return [INIT];
      socket.write(jsonAnswer('404 Not Found', { error: { code: 'NO_RUN' } }));
      return undefined;
    });
  const relayAt = (at: number) => all?.relays[at] as TestRelay;

  test('suffices for sign-ins, messages, reports of keys, and runs that are joined at another instance', async () => {
    all = await start();
    const [first, second] = [all.say(0), all.say(1)];
    for (const client of [first, second]) await client.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const client of [first, second]) expect(await bodyOf(client)).toBe(WHOLE);
    expect(await bodyOf(all.byName(1))).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
    // The use of a key is written in the background.
    const here = { ...inFrontOf(all.upstream.url), ...environment };
    await until(async () => {
      const output = new PassThrough();
      expect(await keysCommand([], loadConfig(here), output)).toBe(0);
      return /worked \d{4}/.test(await text(output.end()));
    });
    const wrong = { name: 'ada', password: 'wrong-password' };
    await expect(relayAt(0).signIn(wrong)).rejects.toThrow('401');
    const post = { method: 'POST', headers: { Cookie: all.cookie } };
    expect((await call(relayAt(1).port, '/auth/logout', post)).status).toBeLessThan(300);
    expect((await relayAt(0).send(all.cookie)).status).toBe(401);
  });

  test('suffices for the stop of a message that waits at another instance', async () => {
    all = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '120000', RATE_MAX_WAIT_MS: '600000' });
    await all.say(0).waitFor('run.init');
    const waiting = all.say(0, { customMessageId: 'message-0000000002' });
    await until(async () => (await statesOfNames(redis.server)).includes('c'));
    const stop = { method: 'POST', headers: { Cookie: all.cookie } };
    expect((await call(relayAt(1).port, SUSPEND_PATH + CHANNEL, stop)).status).toBe(200);
    expect(await bodyOf(waiting)).toContain('"code":"stopped"');
  });

  test('suffices for the check', async () => {
    upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
    const checked = await runCheck([], checkEnvironment(upstream.url, environment));
    expect(checked.of('Redis')).toEqual([expect.stringMatching(/^ok answers in [\d.]+ ms, over TLS$/)]);
    expect(checked.of('key')).toEqual(['ok works']);
    expect(JSON.stringify(checked)).not.toContain(PASSWORD);
  });

  test('need not send more to connect, not even what this version of Redis does not know', async () => {
    const admin = await connected(redis.server.url);
    await admin.onEach((server) => server.configResetStat());
    const user = await connected(redis.server.url.replace('://', `://bot-relay:${PASSWORD}@`));
    expect((await admin.onEach((server) => server.info('errorstats'))).join()).not.toContain('errorstat_');
    for (const one of [admin, user]) one.close();
  });

  test('reaches nothing of other programs, and cannot administer Redis', async () => {
    const asks = [
      ['GET', 'other'],
      ['PUBLISH', 'other', 'x'],
      ['CONFIG', 'GET', '*'],
      ['FLUSHALL'],
      ['KEYS', '*'],
    ];
    for (const words of asks) {
      const dry = await redis.server.command('ACL', 'DRYRUN', 'bot-relay', ...words);
      expect(String(dry)).toMatch(/no permissions/i);
    }
    expect(await redis.server.command('ACL', 'DRYRUN', 'bot-relay', 'GET', 'bot-relay:x')).toBe('OK');
  });
});

const [STEPS = ''] = /^- \*\*The password\*\*.*$/m.exec(SECTION) ?? [];
/** The commands for Redis as the documentation has them. */
const COMMANDS = [...STEPS.matchAll(/`(ACL [^`]+)`/g)].map(([, command = '']) => command.split(' '));

describeWithRedis('the documented rotation of the password of Redis', () => {
  test('holds over a restart of Redis', async () => {
    const acl = `user default on nopass ~* &* +@all\n${LINE.replace('>PASSWORD', '>OLD')}\n`;
    const redis = await startRedis('--aclfile', `${freshFolder({ 'users.acl': acl })}/users.acl`);
    expect(COMMANDS.length).toBeGreaterThan(1);
    for (const words of COMMANDS) expect(await redis.command(...words)).toBe('OK');
    await redis.stop();
    await redis.start();

    const upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
    const REDIS_URL = redis.url.replace('://', '://bot-relay:NEW@');
    const relay = await startRelay(upstream.url, { REDIS_URL });
    const answer = await relay.send(await relay.signIn());
    expect(await answer.text()).toBe('data: 1\n\n');
    await expect(redis.command('AUTH', 'bot-relay', 'OLD')).rejects.toThrow('WRONGPASS');
    await relay.close();
    await upstream.close();
  });
});

afterAll(stopRedis);
