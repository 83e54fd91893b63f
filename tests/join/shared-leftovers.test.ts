import { afterEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, keysWhen, runsEnded, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, EVENTS, INIT } from '../support/joining.ts';
import { chunk, LAST_CHUNK, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { whileAwake } from '../support/while-awake.ts';

jest.setTimeout(60_000);

let all: JoinInstances;
afterEach(() => all.close());

const ENDINGS = ['whole', 'broken', 'refused', 'failed', 'left', 'left early', 'slow', 'short id'];
const RUNS = 80;

describeWithRedis('runs of all endings at two instances', () => {
  test(
    'leave no key, no subscription and no memory behind',
    whileAwake(
      async () => {
        const environment = { JOIN_KEEP_MS: '300', JOIN_REMEMBER_MS: '1500', JOIN_GRACE_MS: '100' };
        all = await startJoinInstances(2, { RESUME_UPSTREAM: 'off', ...environment }, ({ body }, socket) => {
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
        await until(() =>
          all.relays.every(({ runBytes, open }) => runBytes.bytes() === 0 && open.count() === 0),
        );
        expect(await keysWhen(all.redis, (keys) => keys.length === 0)).toEqual([]);
        expect(await subscribed()).toEqual(subscriptions);
        // "short id" may have been sent twice: its first run was over.
        const others = all.upstream.requests.filter(({ body }) => !String(body).includes('short id'));
        expect(others.filter(({ body }) => !/refused|left early/.test(String(body)))).toHaveLength(50);
      },
      () => all.close(),
    ),
  );
});

function subscribed(): Promise<unknown> {
  return all.redis.command('PUBSUB', 'NUMSUB', 'bot-relay:{runs}:news');
}
