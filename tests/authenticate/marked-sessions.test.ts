import { afterEach, expect, test } from '@jest/globals';
import { ENDED, MARK_MS } from '../../src/authenticate/sessions/session-script.ts';
import { call, expectProblem } from '../support/call.ts';
import { type Instances, startInstances } from '../support/instances.ts';
import { describeWithRedis } from '../support/redis.ts';
import { BOT_PATH, MESSAGE, OTHER_USER, type TestRelay } from '../support/relay.ts';
import { CHANNEL, SUSPEND_PATH } from '../support/suspend.ts';

let all: Instances;
afterEach(() => all.close());

const JSON_TYPE = { 'Content-Type': 'application/json' };
const LIVE_PATH = `${BOT_PATH}?custom_channel_id=c1`;
const RUN_PATH = `${BOT_PATH.replace('/sse', '/run')}?custom_channel_id=c1&custom_message_id=message-0000000001`;

/** Marks all sessions of a user as ended, as an instance does that is lost before it removes them. */
async function mark(user: string): Promise<void> {
  // The Redis of this machine has the same clock.
  const score = String(Date.now() + 1 + MARK_MS);
  await all.redis?.command('ZADD', `bot-relay:user-sessions:${user}`, score, ENDED);
}

describeWithRedis('a session that was ended with all of its user by an instance that was lost', () => {
  test.each([
    ['a message', 'POST', BOT_PATH],
    ['a live stream', 'GET', LIVE_PATH],
    ['the run of a message', 'GET', RUN_PATH],
    ['a suspend', 'POST', SUSPEND_PATH + CHANNEL],
    ['the session', 'GET', '/auth/session'],
    ['a logout of all sessions', 'POST', '/auth/logout-all'],
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
});
