import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import type { BotClient, IdStorage, MessageStream } from '../../src/client/session/bot-client.ts';
import { type Reading, readAll } from '../harness/clients/client-pair.ts';
import { until } from '../harness/clock/until.ts';
import { type CuttingFront, memoryStore, startCuttingFront } from '../harness/faults/cutting-front.ts';
import { OTHER_USER, startRelay, USER } from '../harness/relay/relay.ts';

const event = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`;
const dataOf = ({ events }: Reading) => events.map(({ raw }) => raw);

let front: CuttingFront;
beforeAll(async () => {
  front = await startCuttingFront();
});
afterAll(() => front.close());

/** A page of `user` with this store. */
async function page(store: IdStorage | null | undefined, user = USER): Promise<BotClient> {
  const client = front.newClient(store === undefined ? {} : { ids: store });
  await client.signIn(user.name, user.password);
  return client;
}

/** A page that is gone after the first event of an answer; its store still has the message's name. */
async function leftPage(message: string | object = 'a secret') {
  const { kept, store } = memoryStore();
  const { upstream } = front;
  const before = upstream.requests.length;
  const talk = botConversation(await page(store), 'my-channel');
  const isRead = new Promise<void>((resolve) => {
    // Never read on, as in a page that is gone.
    void readAll(talk.send(message), () => new Promise(() => resolve()));
  });
  await until(() => upstream.requests.length > before);
  front.emit(event(1));
  await isRead;
  return { kept, store, runs: () => upstream.requests.length - before };
}
const read = (streams: readonly MessageStream[]) => Promise.all(streams.map((stream) => readAll(stream)));

describe('an answer that had not ended when the page was left', () => {
  test('comes again from its start, and goes on, by a name that has no text', async () => {
    const { kept, store, runs } = await leftPage();
    expect([...kept.values()].join()).toContain('my-channel');
    expect([...kept.values()].join()).not.toContain('secret');
    const client = await page(store);
    const [answer] = botConversation(client, 'my-channel').resume();
    if (!answer) throw new Error('there is none');
    const all = await readAll(answer, ({ raw: data }) => {
      if (data !== 1) return;
      front.emit(event(2));
      front.finish();
    });
    expect({ error: all.error, said: dataOf(all) }).toEqual({ error: undefined, said: [1, 2] });
    expect(answer.state).toBe('done');
    expect(runs()).toBe(1);
    expect(kept.size).toBe(0);
    expect(botConversation(client, 'my-channel').resume()).toEqual([]);
  });

  test('is looked for in its conversation with its bot', async () => {
    const { store } = await leftPage();
    const client = await page(store);
    expect(botConversation(client, 'other').resume()).toHaveLength(0);
    expect(botConversation(client, 'my-channel').resume()).toHaveLength(1);
    const other = front.newClient({ ids: store, botProviderName: 'other' });
    expect(botConversation(other, 'my-channel').resume()).toHaveLength(0);
  });

  test('is joined once more if the connection of the new page breaks, too', async () => {
    const { store, runs } = await leftPage();
    const [answer] = botConversation(await page(store), 'my-channel').resume();
    if (!answer) throw new Error('there is none');
    const all = await readAll(answer, ({ raw: data }) => {
      front.cut();
      front.emit(event(Number(data) + 1));
      if (data === 2) front.finish();
    });
    expect({ error: all.error, said: dataOf(all) }).toEqual({ error: undefined, said: [1, 2, 3] });
    expect(runs()).toBe(1);
  });

  test('is forgotten for another user, who sends nothing', async () => {
    const { kept, store, runs } = await leftPage();
    const answers = await read(botConversation(await page(store, OTHER_USER), 'my-channel').resume());
    expect(answers).toEqual([]);
    expect(kept.size).toBe(0);
    expect(runs()).toBe(1);
  });

  test('is forgotten when another user signs in, also in a page without channels', async () => {
    const { kept, store } = memoryStore();
    const client = await page(store);
    void readAll(botConversation(client, 'my-channel').send('a secret'));
    await until(() => kept.size === 1);
    expect([...kept.values()].join()).toContain(`"${USER.name}"`);
    await client.signIn(OTHER_USER.name, OTHER_USER.password);
    expect(kept.size).toBe(0);
  });

  test('is empty without an error at a relay that joins nothing', async () => {
    const { kept, store } = await leftPage();
    const relay = await startRelay(front.upstream.url);
    front.front.forwardTo(relay.port);
    const before = front.upstream.requests.length;
    const answers = await read(botConversation(await page(store), 'my-channel').resume());
    front.front.forwardTo(front.relay.port);
    await relay.close();
    expect(answers).toEqual([{ events: [], error: undefined }]);
    expect(kept.size).toBe(0);
    expect(front.upstream.requests).toHaveLength(before);
  });

  test('is forgotten when its user signs out', async () => {
    const { kept, store } = await leftPage();
    const client = await page(store);
    createChannel(client);
    await client.signOut();
    expect(kept.size).toBe(0);
  });
});

describe('the name of a message', () => {
  /** What is kept while `message` is under way, and after `end`. */
  async function keptWhile(send: (client: BotClient) => MessageStream, end: () => void) {
    const { kept, store } = memoryStore();
    const before = front.upstream.requests.length;
    const reading = readAll(send(await page(store)));
    await until(() => front.upstream.requests.length > before);
    const during = kept.size;
    end();
    await reading;
    return { during, after: kept.size };
  }

  test.each([
    ['a whole answer', () => front.finish()],
    ['a broken answer', () => front.upstream.sockets.at(-1)?.destroy()],
  ])('is removed after %s', async (_, end) => {
    expect(await keptWhile((client) => botConversation(client, 'c').send('hi'), end)).toEqual({
      during: 1,
      after: 0,
    });
  });

  test('is removed when the user stops the answer', async () => {
    const stop = new AbortController();
    const send = (client: BotClient) => botConversation(client, 'c').send('hi', { signal: stop.signal });
    expect(await keptWhile(send, () => stop.abort())).toEqual({ during: 1, after: 0 });
  });
});

test('what is no name of a message does not disturb a sign-out', async () => {
  const { store } = memoryStore();
  const client = await page(store);
  store.setItem('bot-relay-messages', '[[9e12, null, 5], 7, [9e12]]');
  expect(await client.signOut()).toEqual({ logoutUrl: null });
});

describe('without a store', () => {
  const broken = () => {
    throw new Error('blocked');
  };
  test.each([
    ['as in Node.js', undefined],
    ['by choice', null],
    ['that can be used', { getItem: broken, setItem: broken, removeItem: broken }],
    ['of sense', { getItem: () => '{"a":', setItem: broken, removeItem: broken }],
  ])('%s, messages are sent, and nothing is resumed', async (_, store) => {
    const client = await page(store);
    const before = front.upstream.requests.length;
    const reading = readAll(botConversation(client, 'c').send('hi'));
    await until(() => front.upstream.requests.length > before);
    expect(botConversation(client, 'c').resume()).toEqual([]);
    front.finish();
    expect((await reading).error).toBeUndefined();
  });
});
