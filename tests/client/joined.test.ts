import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import type { BotClient, IdStorage } from '../../src/client/session/bot-client.ts';
import { Problem } from '../../src/errors.ts';
import { LOST_BY_SHUTDOWN } from '../../src/runs/run-problems.ts';
import { dataOf, readAll } from '../harness/clients/client-pair.ts';
import { begins, ends, errorEvent, problemOf, SOON, scripted } from '../harness/clients/scripted.ts';
import type { TestOptions } from '../harness/clients/test-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { type CuttingFront, memoryStore, startCuttingFront } from '../harness/faults/cutting-front.ts';
import { OTHER_USER, startRelay, USER } from '../harness/relay/relay.ts';
import { jsonEvent as event } from '../harness/service/raw-upstream.ts';

const SENT = 'POST message/sse';
const BY_NAME = 'GET message/run';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

/** Sends a message to a relay with joining on, whose bot says the first event, and reads the answer. */
async function say(
  onEvent: (data: unknown, front: CuttingFront) => void,
  { first = event(1), ...options }: Partial<TestOptions> & { first?: string } = {},
) {
  const front = await startCuttingFront({}, options);
  const read = readAll(front.client.send('hi'), ({ raw }) => onEvent(raw, front));
  const { requests } = front.upstream;
  await until(() => requests.length > 0);
  front.emit(first);
  const { events, error } = await read;
  await front.close();
  const resumed = requests.flatMap((one) => one.all('Last-Event-ID'));
  return { said: dataOf(events), error, calls: front.calls, runs: requests.length - resumed.length };
}

describe('at a relay, a message whose connection breaks', () => {
  testSideBySide([
    [
      'goes on after each break, shows every event once, and is sent once',
      async () => {
        const all = await say((data, { cut, emit, finish }) => {
          cut();
          if (data === 4) finish();
          else emit(event(Number(data) + 1));
        });
        const calls = [SENT, BY_NAME, BY_NAME, BY_NAME, BY_NAME];
        expect(all).toEqual({ said: [1, 2, 3, 4], error: undefined, calls, runs: 1 });
      },
    ],
    [
      'goes on after the last id, and shows what came behind it once',
      async () => {
        const { said, calls, runs } = await say((data, { cut, emit, finish }) => {
          if (data === 1) emit(event('kept', 7), event('a'), event('b'));
          if (data === 'b' || data === 'kept') cut();
          if (data === 'b') emit(event('kept', 8), event('end'));
          if (data === 'end') finish();
        });
        expect(said).toEqual([1, 'kept', 'a', 'b', 'kept', 'end']);
        expect({ calls, runs }).toEqual({ calls: [SENT, `${BY_NAME} 7`, `${BY_NAME} 8`], runs: 1 });
      },
    ],
    [
      'is whole if its run has ended meanwhile',
      async () => {
        const { said, error, runs } = await say((data, { cut, emit, finish }) => {
          if (data !== 1) return;
          cut();
          emit(event(2), event(3));
          finish();
        });
        expect({ said, error, runs }).toEqual({ said: [1, 2, 3], error: undefined, runs: 1 });
      },
    ],
    [
      'fails with what its run has failed with',
      async () => {
        const { said, error, runs } = await say((_, { cut, upstream }) => {
          cut();
          upstream.sockets[0]?.destroy();
        });
        expect(error).toMatchObject({ code: 'upstream_stream_broken', status: 502, retryable: false });
        expect({ said, runs }).toEqual({ said: [1], runs: 1 });
      },
    ],
    [
      'is whole after a shutdown of the relay, if it has an id',
      async () => {
        const { said, error, calls } = await say(
          (data, { relay, emit, finish, upstream }) => {
            if (data !== 1) return;
            relay.parts.open.endAll(new Problem('draining', 'No.'));
            void until(() => upstream.requests.length > 1).then(() => {
              emit(event(2, 8));
              finish();
            });
          },
          { first: event(1, 7) },
        );
        expect({ said, error, calls }).toEqual({
          said: [1, 2],
          error: undefined,
          calls: [SENT, `${SENT} 7`],
        });
      },
    ],
    [
      'ends with the words of the relay after its shutdown, without an id',
      async () => {
        const { said, error, calls } = await say((_, { relay }) =>
          relay.parts.open.endAll(new Problem('draining', 'No.')),
        );
        const { code, message } = LOST_BY_SHUTDOWN;
        expect(error).toMatchObject({ code: 'answer_lost', message, retryable: false, maybeStarted: true });
        expect({ code, said, calls }).toEqual({ code: 'answer_lost', said: [1], calls: [SENT] });
      },
    ],
  ]);
});

// The pause is longer than the time that this may take.
test('at a relay, a message whose connection breaks ends as soon as its user has signed out, however long the next pause is', async () => {
  const busy = { status: 503, code: 'draining', retryable: 'new message' };
  let asked = 0;
  let signOut = () => {};
  const away: typeof fetch = async (url, init) => {
    if (!String(url).includes('/message/run')) return fetch(url, init);
    // Only then does the long pause begin.
    setImmediate(() => signOut());
    asked += 1;
    return new Response(problemOf(busy), { status: 503, headers: { 'Retry-After': '50' } });
  };
  const cut = (_: unknown, front: CuttingFront) => {
    signOut = () => void front.client.signOut();
    front.cut();
  };
  const { said, error } = await say(cut, { fetch: away });
  expect(error).toMatchObject({ code: 'session_ended', status: 401 });
  expect({ said, asked }).toEqual({ said: [1], asked: 1 });
}, 30_000);

let front: CuttingFront;
beforeAll(async () => {
  front = await startCuttingFront();
});
afterAll(() => front.close());

/** A page of `user` with this store. */
async function page(ids: IdStorage | null | undefined, user = USER): Promise<BotClient> {
  const client = front.newClient(ids === undefined ? {} : { ids });
  await client.signIn(user.name, user.password);
  return client;
}
const talkOf = (client: BotClient, id = 'my-channel') => botConversation(client, id);

/** The one answer that a page finds when it comes back. */
function found(client: BotClient) {
  const [answer, ...others] = talkOf(client).resume();
  if (!answer || others.length > 0) throw new Error('there is not one answer');
  return answer;
}

/** A page that is gone after the first event of an answer; its store still has the message's name. */
async function leftPage() {
  const { kept, store } = memoryStore();
  const { upstream } = front;
  const before = upstream.requests.length;
  const talk = talkOf(await page(store));
  const isRead = new Promise<void>((resolve) => {
    // Never read on, as in a page that is gone.
    void readAll(talk.send('a secret'), () => new Promise(() => resolve()));
  });
  await until(() => upstream.requests.length > before);
  front.emit(event(1));
  await isRead;
  return { kept, store, runs: () => upstream.requests.length - before };
}

describe('an answer that had not ended when the page was left', () => {
  test('comes again from its start, and goes on, by a name that has no text', async () => {
    const { kept, store, runs } = await leftPage();
    expect([...kept.values()].join()).toContain('my-channel');
    expect([...kept.values()].join()).not.toContain('secret');
    const client = await page(store);
    const answer = found(client);
    const all = await readAll(answer, ({ raw: data }) => {
      if (data !== 1) return;
      front.emit(event(2));
      front.finish();
    });
    expect({ error: all.error, said: dataOf(all.events) }).toEqual({ error: undefined, said: [1, 2] });
    expect([answer.state, runs(), kept.size]).toEqual(['done', 1, 0]);
    expect(talkOf(client).resume()).toEqual([]);
  });

  test('is looked for in its conversation with its bot', async () => {
    const { store } = await leftPage();
    const client = await page(store);
    expect(talkOf(client, 'other').resume()).toHaveLength(0);
    expect(talkOf(client).resume()).toHaveLength(1);
    const other = front.newClient({ ids: store, botProviderName: 'other' });
    expect(talkOf(other).resume()).toHaveLength(0);
  });

  test('is joined once more if the connection of the new page breaks, too', async () => {
    const { store, runs } = await leftPage();
    const all = await readAll(found(await page(store)), ({ raw: data }) => {
      front.cut();
      front.emit(event(Number(data) + 1));
      if (data === 2) front.finish();
    });
    expect({ error: all.error, said: dataOf(all.events) }).toEqual({ error: undefined, said: [1, 2, 3] });
    expect(runs()).toBe(1);
  });

  test('is forgotten for another user, who sends nothing', async () => {
    const { kept, store, runs } = await leftPage();
    expect(talkOf(await page(store, OTHER_USER)).resume()).toEqual([]);
    expect([kept.size, runs()]).toEqual([0, 1]);
  });

  test('is empty without an error at a relay that joins nothing', async () => {
    const { kept, store, runs } = await leftPage();
    const relay = await startRelay(front.upstream.url);
    front.front.forwardTo(relay.port);
    const answer = await readAll(found(await page(store)));
    front.front.forwardTo(front.relay.port);
    await relay.close();
    expect(answer).toEqual({ events: [], error: undefined });
    expect([kept.size, runs()]).toEqual([0, 1]);
  });

  test('is forgotten when its user signs out', async () => {
    const { kept, store } = await leftPage();
    const client = await page(store);
    createChannel(client);
    await client.signOut();
    expect(kept.size).toBe(0);
  });

  test.each([
    ['with an id', 1],
    ['without an id', undefined],
  ])(
    'is shown as far as the relay has it, and not sent again, if it is lost meanwhile: %s',
    async (_, id) => {
      const lost = errorEvent('answer_lost', { detail: 'The relay was restarted.' });
      const { client, calls, close } = await scripted({
        answers: [begins(':\n')],
        joined: [ends(SOON, event(1), event(2, id), lost)],
        ids: memoryStore().store,
      });
      closers.push(close);
      // Never read on, as in a page that is gone.
      void readAll(talkOf(client).send('hi'));
      await until(() => calls().length === 1);
      const { events, error } = await readAll(found(client));
      expect(error).toMatchObject({ code: 'answer_lost', message: 'The relay was restarted.' });
      expect({ said: dataOf(events), calls: calls() }).toEqual({ said: [1, 2], calls: ['POST', 'RUN'] });
    },
  );
});

test.each<[string, (stop: AbortController) => unknown]>([
  ['a whole answer', () => front.finish()],
  ['a broken answer', () => front.upstream.sockets.at(-1)?.destroy()],
  ['a stop of the user', (stop) => stop.abort()],
])('the name of a message is kept while it is under way, and removed after %s', async (_, end) => {
  const { kept, store } = memoryStore();
  const before = front.upstream.requests.length;
  const stop = new AbortController();
  const reading = readAll(talkOf(await page(store)).send('hi', { signal: stop.signal }));
  await until(() => front.upstream.requests.length > before);
  expect(kept.size).toBe(1);
  end(stop);
  await reading;
  expect(kept.size).toBe(0);
});

const broken = () => {
  throw new Error('blocked');
};
test.each([
  ['there is none, as in Node.js', undefined],
  ['there is none by choice', null],
  ['the store cannot be used', { getItem: broken, setItem: broken, removeItem: broken }],
  ['it has no JSON', { getItem: () => '{"a":', setItem: broken, removeItem: broken }],
  [
    'it has other JSON',
    { getItem: () => '[[9e12, null, 5], 7, [9e12], null]', setItem() {}, removeItem() {} },
  ],
])('without a store of names, messages are sent, and nothing is resumed: %s', async (_, store) => {
  const client = await page(store);
  const before = front.upstream.requests.length;
  const reading = readAll(talkOf(client).send('hi'));
  await until(() => front.upstream.requests.length > before);
  expect(talkOf(client).resume()).toEqual([]);
  front.finish();
  expect((await reading).error).toBeUndefined();
  expect(await client.signOut()).toEqual({ logoutUrl: null });
});
