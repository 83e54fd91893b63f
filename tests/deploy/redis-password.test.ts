import { readFileSync } from 'node:fs';
import { afterAll, expect, test } from '@jest/globals';
import { sectionOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { freshFolder } from '../harness/relay/process.ts';
import { startRelay } from '../harness/relay/relay.ts';
import { startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const SECTION = sectionOf(readFileSync(`${ROOT}/docs/deploy.md`, 'utf8'), '### Redis over a network');
const [USER = ''] = /^user bot-relay .*$/m.exec(SECTION) ?? [];
const [STEPS = ''] = /^- \*\*The password\*\*.*$/m.exec(SECTION) ?? [];
/** The commands for Redis as the documentation has them. */
const COMMANDS = [...STEPS.matchAll(/`(ACL [^`]+)`/g)].map(([, command = '']) => command.split(' '));

describeWithRedis('the documented rotation of the password of Redis', () => {
  afterAll(stopRedis);

  test('holds over a restart of Redis', async () => {
    const acl = `user default on nopass ~* &* +@all\n${USER.replace('>PASSWORD', '>OLD')}\n`;
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
