import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { eventually, until } from '../harness/clock/until.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { describeWithRedis, type RedisServer, stopRedis } from '../harness/redis/redis.ts';
import { MASTER_NAME, type SentinelGroup, startSentinels } from '../harness/redis/redis-sentinel.ts';

const PASSWORD = 'canary-sentinel-word';
const opened: Redis[] = [];
/** Its log goes to `lines`. */
function open(
  lines: string[] = [],
  changes: { readonly master?: string; readonly password?: string; readonly url?: string } = {},
) {
  const { master = MASTER_NAME, password = PASSWORD, url = group.url } = changes;
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const sentinel = { master, user: 'relay', password: secret(password) };
  const redis = openRedis({ url: secret(url), sentinel, logger });
  opened.push(redis);
  return redis;
}
const messages = (lines: readonly string[]) => lines.map((line) => JSON.parse(line).msg);
const name = (redis: Redis) => redis.run((client) => client.get('name'));

let group: SentinelGroup;
beforeAll(async () => {
  group = await startSentinels();
  for (const sentinel of group.sentinels) {
    const rights = ['on', `>${PASSWORD}`, '-@all', '+sentinel|get-master-addr-by-name'];
    await sentinel.command('ACL', 'SETUSER', 'relay', ...rights);
  }
});
afterAll(() => {
  for (const redis of opened.splice(0)) redis.close();
  stopRedis();
});

describeWithRedis('Sentinel', () => {
  test('names the master, also if the first of the sentinels do not answer', async () => {
    const [first] = group.sentinels as [RedisServer];
    first.pause();
    const redis = open();
    await redis.ready(30_000);
    await redis.run((client) => client.set('name', 'one'));
    expect(await name(redis)).toBe('one');
    first.resume();
  });

  test.each([
    ['a name that it does not know', 'NOMASTER', { master: 'others' }],
    ['a wrong password', 'WRONGPASS', { password: 'canary-wrong' }],
  ])('is asked in vain with %s: %s', async (_how, cause, changes) => {
    const lines: string[] = [];
    const redis = open(lines, changes);
    await until(() => lines.length > 0);
    expect(JSON.parse(lines[0] as string)).toMatchObject({ msg: 'redis lost', cause });
    await expect(name(redis)).rejects.toMatchObject({ cause });
    expect(lines.join('')).not.toContain('canary');
  });

  test('is used with the documented rights alone', async () => {
    const text = readFileSync(`${ROOT}/docs/deploy.md`, 'utf8');
    const [, rights = ''] = /^user bot-relay on >PASSWORD (.*)$/m.exec(text) ?? [];
    const [, more = ''] = /With Sentinel, the user at Redis also needs `([^`]+)`/.exec(text) ?? [];
    const words = ['on', '>word', ...rights.split(' '), ...more.split(' ')];
    for (const server of group.servers) await server.command('ACL', 'SETUSER', 'bot-relay', ...words);
    const redis = open([], { url: group.url.replace('://', '://bot-relay:word@') });
    await redis.ready(30_000);
    expect(await redis.answers()).toBe(true);
    for (const server of group.servers) expect(await server.command('ACL', 'LOG')).toEqual([]);
  });

  test('is followed to another master while the old one still answers', async () => {
    const lines: string[] = [];
    const redis = open(lines);
    await redis.ready(30_000);
    const before = await group.master();
    await redis.run((client) => client.set('name', 'two'));
    await before.command('WAIT', '1', '1000');
    const from = performance.now();
    await group.sentinels[0]?.command('SENTINEL', 'FAILOVER', MASTER_NAME);
    await until(() => messages(lines).length >= 3, 20);
    expect(messages(lines)).toEqual(['redis ready', 'redis lost', 'redis ready']);
    // The old one ends its connections only seconds later.
    expect(JSON.parse(lines[1] as string)).toMatchObject({ cause: 'NEWMASTER' });
    // Budgets wait until every instance has looked at the sentinels again.
    expect(redis.backAt()).toBeGreaterThan(from + 1_000);
    await eventually(() => redis.run((client) => client.set('name', 'three')));
    expect((await group.master()).port).not.toBe(before.port);
    const after = await group.master();
    expect(await after.command('GET', 'name')).toBe('three');
    // The sentinels make the old one a replica only after eight seconds.
    await before.command('REPLICAOF', '127.0.0.1', String(after.port));
  });

  test('names a new master when the old one is lost; until then each command fails at once', async () => {
    // The failover before is over: both servers are known as what they are.
    const before = await eventually(async () => {
      const master = await group.master();
      const info = String(await master.command('INFO', 'replication'));
      if (!info.includes('state=online')) throw new Error('not yet');
      return master;
    });
    const lines: string[] = [];
    const redis = open(lines);
    let listening = 0;
    const heard: string[] = [];
    await redis.subscribe(
      'news',
      (text) => heard.push(text),
      () => {
        listening += 1;
      },
    );
    await redis.run((client) => client.set('name', 'four'));
    await before.command('WAIT', '1', '1000');
    await before.stop();
    await until(() => messages(lines).includes('redis lost'));
    const lostAt = performance.now();
    await expect(name(redis)).rejects.toMatchObject({ code: 'session_store_unavailable' });
    expect(messages(lines)).toEqual(['redis ready', 'redis lost']);
    expect(await eventually(() => name(redis))).toBe('four');
    expect(redis.backAt()).toBeGreaterThan(lostAt);
    expect(messages(lines)).toEqual(['redis ready', 'redis lost', 'redis ready']);
    await until(() => listening === 2);
    await eventually(async () => (await group.master()).command('PUBLISH', 'news', 'after'));
    await until(() => heard.includes('after'));
  });
});
