import { afterEach, expect, test } from '@jest/globals';
import { ENDED, MARK_MS } from '../../src/authenticate/sessions/session-script.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { CHANNEL, SUSPEND_PATH } from '../harness/clients/suspend.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { BOT_PATH, MESSAGE, OTHER_USER, type TestRelay } from '../harness/relay/relay.ts';

let all: Instances;
afterEach(() => all.close());

const JSON_TYPE = { 'Content-Type': 'application/json' };
const LIVE_PATH = `${BOT_PATH}?custom_channel_id=c1`;
const RUN_PATH = `${BOT_PATH.replace('/sse', '/run')}?custom_channel_id=c1&custom_message_id=message-0000000001`;

/** Marks all sessions of a user as ended, as an instance does that is lost before it removes them. */
async function mark(user: string): Promise<void> {
  // The Redis of this machine has the same clock.
  const score = String(Date.now() + MARK_MS);
  await all.redis?.command('ZADD', `bot-relay:user-sessions:${user}`, score, ENDED);
}

describeWithRedis('a session that was ended with all of its user by an instance that was lost', () => {
  test.each([
    ['a message', 'POST', BOT_PATH],
    ['a live stream', 'GET', LIVE_PATH],
    ['the run of a message', 'GET', RUN_PATH],
    ['a suspend', 'POST', SUSPEND_PATH + CHANNEL],
    ['the session', 'GET', '/auth/session'],
  ])('is refused for %s, and those of others are not', async (_what, method, path) => {
    all = await startInstances({ count: 1, shared: true });
    const [relay] = all.relays as [TestRelay];
    const [mine, bobs] = [await relay.signIn(), await relay.signIn(OTHER_USER)];
    await mark('ada');
    const body = path === BOT_PATH && method === 'POST' ? { body: MESSAGE } : {};
    const headers = { ...JSON_TYPE, Cookie: mine };
    expectProblem(await call(relay.port, path, { method, headers, ...body }), 401, 'unauthenticated');
    expect(all.upstream.requests).toHaveLength(0);
    expect((await all.get(0, '/auth/session', bobs)).status).toBe(200);
  });

  test('is refused before a bot that is not known', async () => {
    all = await startInstances({ count: 1, shared: true });
    const [relay] = all.relays as [TestRelay];
    const mine = await relay.signIn();
    const headers = { ...JSON_TYPE, Cookie: mine };
    const nobody = (path: string) => path.replace('helper', 'nobody');
    const ask = (method: string, path: string) =>
      call(relay.port, nobody(path), { method, headers, ...(path === BOT_PATH && { body: MESSAGE }) });
    const requests = [
      ['POST', BOT_PATH],
      ['GET', LIVE_PATH],
      ['GET', RUN_PATH],
      ['POST', SUSPEND_PATH + CHANNEL],
    ] as const;
    for (const [method, path] of requests) expect((await ask(method, path)).status).toBe(404);
    await mark('ada');
    for (const [method, path] of requests) expectProblem(await ask(method, path), 401, 'unauthenticated');
  });

  test('finishes the logout of all sessions that has failed', async () => {
    all = await startInstances({ count: 1, shared: true });
    const [relay] = all.relays as [TestRelay];
    const [mine] = [await relay.signIn(), await relay.signIn()];
    await mark('ada');
    const answer = await call(relay.port, '/auth/logout-all', { method: 'POST', headers: { Cookie: mine } });
    expect(answer.status).toBe(204);
    expect(String(answer.headers['set-cookie'])).toContain('Expires=Thu, 01 Jan 1970');
    const names = (await all.redis?.command('KEYS', 'bot-relay:session:*')) as string[];
    expect(names).toHaveLength(2);
    for (const name of names) expect(await all.redis?.command('GET', name)).toBe('removed');
  });

  test('is replaced for a guest who comes back', async () => {
    all = await startInstances({ count: 1, shared: true, environment: { AUTH_MODE: 'guest' } });
    const [relay] = all.relays as [TestRelay];
    const ask = (headers = {}) =>
      call(relay.port, '/auth/guest', { method: 'POST', headers: { ...JSON_TYPE, ...headers } });
    const cookieOf = ({ headers }: { headers: object }) =>
      String((headers as Record<string, unknown>)['set-cookie']).split(';')[0] ?? '';
    const cookie = cookieOf(await ask());
    const sets = await all.redis?.command('KEYS', 'bot-relay:user-sessions:*');
    await mark(String(sets).replace('bot-relay:user-sessions:', ''));
    const answer = await ask({ Cookie: cookie });
    expect(answer.status).toBe(200);
    expect((await ask({ Cookie: cookieOf(answer) })).headers['set-cookie']).toBeUndefined();
  });
});
