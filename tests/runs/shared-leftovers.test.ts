import { afterEach, expect, test } from '@jest/globals';
import { bodyOf, EVENTS, INIT } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  expectExpiring,
  type JoinInstances,
  keysWhen,
  runsEnded,
  startJoinInstances,
} from '../harness/relay/join-instances.ts';
import { chunk, LAST_CHUNK, plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all.close());

const ENDINGS = ['whole', 'broken', 'refused', 'failed', 'left', 'left early', 'slow', 'short id'];
const RUNS = 80;

describeWithRedis('runs of all endings at two instances', () => {
  test('leave no key for ever, no subscription and no memory behind', async () => {
    const environment = {
      ...{ JOIN_KEEP_MS: '300', JOIN_REMEMBER_MS: '1500', JOIN_GRACE_MS: '100' },
      RESUME_UPSTREAM: 'off',
    };
    all = await startJoinInstances(2, environment, ({ body }, socket) => {
      const { text } = JSON.parse(String(body)) as { text: string };
      if (text === 'refused') socket.write(plainAnswer('422 No', []));
      else if (text === 'failed') socket.write(plainAnswer('500 No', []));
      else if (text === 'whole' || text === 'short id') socket.write(wholeStream(...EVENTS));
      else {
        if (text === 'broken') setTimeout(() => socket.destroy(), 100);
        if (text === 'slow') {
          const rest = [...EVENTS.slice(1).map(chunk), Buffer.from(LAST_CHUNK)];
          setTimeout(() => socket.write(Buffer.concat(rest)), 100);
        }
        return [INIT];
      }
      return undefined;
    });
    const subscriptions = await subscribed();
    await Promise.all(
      Array.from({ length: RUNS }, async (_, n) => {
        const text = ENDINGS[n % ENDINGS.length] as string;
        const id = text === 'short id' ? `m-${n}` : `message-number-${n}-of-many`;
        const message = { text, customChannelId: `c${n % 20}`, customMessageId: id };
        const clients = [all.say(n % 2, message), all.say((n + 1) % 2, message)];
        if (text === 'left') await Promise.all(clients.map((client) => client.waitFor('run.init')));
        for (const client of clients) {
          if (text.startsWith('left')) client.socket.destroy();
          else await bodyOf(client);
        }
      }),
    );
    await runsEnded(all.redis);
    await until(() => all.relays.every(({ runs, open }) => runs.bytes() === 0 && open.count() === 0));
    // Names go last, at once for each conversation.
    await keysWhen(all.redis, (keys) => keys.every((key) => key.endsWith(':names')));
    await expectExpiring(all.redis);
    expect(await subscribed()).toEqual(subscriptions);
  });
});

function subscribed(): Promise<unknown> {
  return all.redis.command('PUBSUB', 'NUMSUB', 'bot-relay:{runs}:news');
}
