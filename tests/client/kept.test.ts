import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { ChannelKey, ChannelMessage, MessageStorage } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { chatRows, defaultChannels, lastBot } from '../../src/client/channel/default-channel.ts';
import { chatsOf } from '../../src/client/element/chats.ts';
import { keptChats } from '../../src/client/element/kept-chats.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import { followedSession } from '../../src/client/session/followed-session.ts';
import { forgetKept } from '../../src/client/session/kept.ts';
import {
  allOf,
  type ChannelStage,
  isLoaded,
  isOf,
  OTHER_USER,
  refuseUnhandledRejections,
  startDemoStage,
  USER,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

refuseUnhandledRejections();

const SECRET: ChannelMessage = {
  ...{ id: '1', role: 'user', state: 'done', metadata: {} },
  parts: [{ type: 'text', text: 'secret' }],
};
/** Relays whose bot service has no histories, and has some. */
let stage: ChannelStage;
let chat: ChannelStage;
beforeAll(async () => {
  stage = await startDemoStage('echo', { OPERATIONS: 'message,files' });
  chat = await startDemoStage('echo', { OPERATIONS: 'message,chat' });
});
afterEach(() => {
  stage.leave();
  chat.leave();
});
afterAll(async () => {
  await stage.close();
  await chat.close();
});

/** What a page keeps by its user and channel, and the calls of its functions. */
function pageStorage() {
  const kept = new Map<string, readonly ChannelMessage[]>();
  const calls: string[] = [];
  const at = (name: string, { user, channelId }: ChannelKey) => {
    calls.push(`${name} ${user} ${channelId}`);
    return `${user} ${channelId}`;
  };
  const history: MessageStorage = {
    load: async (key) => kept.get(at('load', key)) ?? [],
    save: async (messages, key) => void kept.set(at('save', key), messages),
    clear: async (key) => void kept.delete(at('clear', key)),
  };
  return { kept, calls, history };
}

describe('the page keeps the messages of a channel', () => {
  test('under their user and channel, so that another user sees none of them after a reload', async () => {
    const { kept, calls, history } = pageStorage();
    const first = await stage.channel({ id: 'my-channel', messages: history });
    await first.send('Hello');
    const user = `${first.getSnapshot().session?.user.id}`;
    await until(() => kept.size === 1);
    expect([...kept.keys()]).toEqual([`${user} my-channel`]);
    const again = createChannel(await stage.signedIn({}, OTHER_USER), {
      id: 'my-channel',
      messages: history,
    });
    again.subscribe(() => {});
    await until(() => Boolean(again.getSnapshot().session) && !again.getSnapshot().isLoading);
    expect(allOf(again)).toEqual([]);
    const other = `${again.getSnapshot().session?.user.id}`;
    expect(calls).toEqual([
      ...[`load ${user} my-channel`, `save ${user} my-channel`, `load ${other} my-channel`],
    ]);
    expect(other).not.toBe(user);
  });

  test('which are cleared, not loaded, for a new channel', async () => {
    const { calls, history } = pageStorage();
    const channel = await stage.channel({ messages: { ...history, load: async () => [SECRET] } });
    await until(() => calls.length === 1);
    await isLoaded(channel);
    expect(calls).toEqual([`clear ${channel.getSnapshot().session?.user.id} ${channel.id}`]);
    expect(allOf(channel)).toEqual([]);
    await channel.send('Hello');
    await until(() => calls.length === 2);
    expect(calls[1]).toMatch(/^save /);
  });

  test('and clears those of the conversation that a reset has left', async () => {
    const { kept, calls, history } = pageStorage();
    const channel = await stage.channel({ messages: history });
    await channel.send('Hello');
    await until(() => kept.size === 1);
    const left = `clear ${channel.getSnapshot().session?.user.id} ${channel.id}`;
    calls.length = 0;
    expect(await channel.reset()).toBe(true);
    expect(calls).toContain(left);
    expect(kept.size).toBe(0);
  });
});

describe('messages that the page still loads', () => {
  /** A channel whose page loads a secret until `go` is called, and then nothing. */
  async function loading(id?: string) {
    let go: () => void = () => {};
    let loads = 0;
    const load = async () => {
      if (loads++ > 0) return [];
      await new Promise<void>((resolve) => {
        go = resolve;
      });
      return [SECRET];
    };
    const { history } = pageStorage();
    const { store } = memoryStore();
    await (await stage.channel({}, { ids: store })).send('Hello');
    const client = await stage.signedIn({ ids: store });
    const channel = createChannel(client, { ...(id && { id }), messages: { ...history, load } });
    channel.subscribe(() => {});
    await until(() => loads === 1);
    return { client, channel, go: () => go() };
  }

  test('are not shown to the next user', async () => {
    const { client, channel, go } = await loading('my-channel');
    await client.signOut();
    await client.signIn(OTHER_USER.name, OTHER_USER.password);
    await isOf(channel, OTHER_USER);
    go();
    await channel.send('Mine');
    await until(() => allOf(channel)[1] === 'bot: You said: Mine');
    expect(allOf(channel)).toEqual(['user: Mine', 'bot: You said: Mine']);
  });

  test('do not come back after a reset', async () => {
    const { channel, go } = await loading();
    expect(await channel.reset()).toBe(true);
    go();
    await channel.send('Mine');
    await until(() => allOf(channel)[1] === 'bot: You said: Mine');
    expect(allOf(channel)).toEqual(['user: Mine', 'bot: You said: Mine']);
  });
});

test('what the bot service still tells of the past when a channel is reset is not shown', async () => {
  const first = await chat.channel({ id: 'my-channel' });
  await first.send('Hello');
  const calls = heldCalls();
  const tellHistory = calls.hold('message/sse');
  const sent = (part: string) => until(() => calls.called.some((address) => address.includes(part)));
  const client = await chat.signedIn({ fetch: calls.fetch });
  const channel = createChannel(client, { id: 'my-channel' });
  channel.subscribe(() => {});
  await sent('message/sse');
  expect(await channel.reset()).toBe(true);
  tellHistory();
  await channel.send('Mine');
  await until(() => allOf(channel)[1] === 'bot: You said: Mine');
  expect(allOf(channel)).toEqual(['user: Mine', 'bot: You said: Mine']);
});

test('a reset that ends after another user has come leaves their messages alone', async () => {
  const calls = heldCalls();
  const client = await chat.signedIn({ fetch: calls.fetch });
  const channel = createChannel(client, { id: 'of-two-users' });
  channel.subscribe(() => {});
  await channel.send('Hello');
  const goOn = calls.hold('channel/clear');
  const reset = channel.reset();
  await until(() => calls.called.some((address) => address.includes('channel/clear')));
  await client.signIn(OTHER_USER.name, OTHER_USER.password);
  await isOf(channel, OTHER_USER);
  await channel.send('Mine');
  goOn();
  expect(await reset).toBe(false);
  await channel.send('More');
  await until(() => allOf(channel).at(-1) === 'bot: You said: More');
  expect(allOf(channel)).toEqual([
    ...['user: Mine', 'bot: You said: Mine'],
    ...['user: More', 'bot: You said: More'],
  ]);
  expect(channel.getSnapshot().error).toBeUndefined();
});

test('nothing of a user is kept after a sign-out by a client that nothing follows', async () => {
  const { kept, store } = memoryStore();
  const elsewhere = [Date.now(), USER.name, 'https://elsewhere.example a/b', 'its-id'];
  kept.set('bot-relay-channels', JSON.stringify([elsewhere]));
  await (await stage.channel({}, { ids: store })).send('Hello');
  const bare = await stage.signedIn({ ids: store });
  expect(JSON.parse(kept.get('bot-relay-channels') ?? '')).toHaveLength(2);
  await bare.signOut();
  expect([...kept]).toEqual([['bot-relay-channels', JSON.stringify([elsewhere])]]);
});

/** A channel with an upload whose answer is held. */
async function uploading() {
  const calls = heldCalls();
  const client = await stage.signedIn({ fetch: calls.fetch });
  const channel = createChannel(client);
  const leave = channel.subscribe(() => {});
  await isOf(channel, USER);
  const release = calls.hold('/blob');
  const errors: string[] = [];
  const part = channel.upload(new File(['text'], 'a.txt'), { onError: ({ code }) => errors.push(code) });
  await until(() => calls.called.some((address) => address.endsWith('/blob')));
  return { client, channel, release, part, errors, leave };
}

describe('a file whose upload ends', () => {
  test('when its user has left is no part for the next one, and no error', async () => {
    const { client, channel, part, errors, release, leave } = await uploading();
    await client.signIn(OTHER_USER.name, OTHER_USER.password);
    await isOf(channel, OTHER_USER);
    release();
    expect(await part).toBeUndefined();
    expect([errors, channel.getSnapshot().error]).toEqual([[], undefined]);
    leave();
  });

  test('when the default channel has begun another conversation is no part for that', async () => {
    const { channel, part, errors, release, leave } = await uploading();
    const { id } = channel;
    expect(await channel.reset()).toBe(true);
    expect(channel.id).not.toBe(id);
    release();
    expect(await part).toBeUndefined();
    expect(errors).toEqual([]);
    leave();
  });
});

const DAY_MS = 24 * 3_600_000;

/** What the browser keeps, and the default channels of a bot of a relay in it. */
function browser() {
  const { kept, store } = memoryStore();
  const at = (baseUrl: string, botProviderName = 'helper') =>
    defaultChannels({ baseUrl, namespace: 'acme', botProviderName, ids: store });
  /** Makes all that is kept older. */
  const age = (ms: number) => {
    for (const [key, value] of kept) {
      const rows = JSON.parse(value) as [number, ...unknown[]][];
      store.setItem(key, JSON.stringify(rows.map(([time, ...row]) => [time - ms, ...row])));
    }
  };
  const forget = (baseUrl: string, except?: string) =>
    forgetKept({ baseUrl, ids: store }, (of) => of === except);
  return { kept, store, at, age, forget };
}

test('a user has one default channel for each bot and relay', () => {
  const { at } = browser();
  const { id, isNew } = at('/one').idFor('ada');
  expect(isNew).toBe(true);
  expect(at('/one').idFor('ada')).toEqual({ id, isNew: false });
  const others = [
    at('/one', 'other').idFor('ada'),
    at('/two').idFor('ada'),
    at('/one').idFor('bob'),
    at('/one').idFor('ada', true),
  ];
  expect(others.map((one) => one.isNew)).toEqual([true, true, true, true]);
  expect(new Set([id, ...others.map((one) => one.id)]).size).toBe(5);
});

test('the ids of a relay are forgotten without those of another one on the same origin', () => {
  const { at, kept, forget } = browser();
  const ids = [at('/one').idFor('ada').id, at('/two').idFor('bob').id];
  forget('/two', 'bob');
  expect([at('/one').idFor('ada').id, at('/two').idFor('bob').id]).toEqual(ids);
  forget('/one');
  expect(at('/two').idFor('bob').id).toBe(ids[1]);
  expect(JSON.stringify([...kept.values()])).not.toContain('ada');
  forget('/two');
  expect(kept.size).toBe(0);
});

test('an id is forgotten after 30 days without use', () => {
  const { at, age } = browser();
  const { id } = at('').idFor('ada');
  age(29 * DAY_MS);
  expect(at('').idFor('ada').id).toBe(id);
  age(29 * DAY_MS);
  expect(at('').idFor('ada').id).toBe(id);
  age(30 * DAY_MS);
  expect(at('').idFor('ada')).toMatchObject({ isNew: true });
});

test('what is older than 30 days is not only left out, but removed', () => {
  const { at, age, kept, forget } = browser();
  at('').idFor('ada');
  age(31 * DAY_MS);
  forget('', 'ada');
  expect(kept.size).toBe(0);
});

test('another conversation is the default one after it was chosen', () => {
  const { at } = browser();
  at('').idFor('ada');
  at('').choose('ada', 'another');
  expect(at('').idFor('ada')).toEqual({ id: 'another', isNew: false });
});

test('the chats of a user go with the default channels, and those of another relay stay', () => {
  const { store, forget } = browser();
  const rows = (user: string) => chatRows({ ids: store }, user);
  rows('ada').set([
    [Date.now(), 'ada', '/one acme/helper', 'id', 'Title'],
    [Date.now(), 'ada', '/two acme/helper', 'id', 'Title'],
  ]);
  forget('/one', 'ada');
  expect(rows('ada').all()).toHaveLength(2);
  forget('/one', 'bob');
  expect(rows('ada').all()).toMatchObject([{ 2: '/two acme/helper' }]);
});

test('the bot of a page is the one that was opened last, of those that it offers', () => {
  const { at, store } = browser();
  const last = (...bots: string[]) => lastBot({ baseUrl: '/one', ids: store }, bots);
  for (const bot of ['a', 'b']) at('/one', bot).idFor('ada');
  at('/two', 'c').idFor('ada');
  expect([last('acme/a', 'acme/b', 'acme/c'), last('acme/a', 'acme/c'), last('acme/c')]).toEqual([
    ...['acme/b', 'acme/a', undefined],
  ]);
});

const MINUTE_MS = 60_000;
const LATER = '2099-01-01T00:00:00Z';
const SESSION = {
  user: { id: 'ada', name: 'Ada' },
  ...{ idleExpiresAt: LATER, absoluteExpiresAt: LATER },
};

describe('the list of chats', () => {
  let client: BotClient;
  let kept: ReturnType<typeof keptChats>;
  let stored: () => string;
  beforeEach(async () => {
    const { store } = memoryStore();
    const document = { addEventListener() {}, removeEventListener() {}, visibilityState: 'visible' };
    const sessionStorage = memoryStore().store;
    Object.assign(globalThis, { addEventListener() {}, document, localStorage: store, sessionStorage });
    client = testClient({
      ...{ baseUrl: 'http://localhost:1', namespace: 'a', botProviderName: 'b' },
      fetch: async () => Response.json(SESSION),
    });
    const session = followedSession(client);
    session.subscribe(() => {});
    await session.known();
    jest.useFakeTimers();
    kept = keptChats(client);
    stored = () => store.getItem('bot-relay-chats') ?? '';
  });
  afterEach(() => {
    jest.useRealTimers();
    for (const name of ['addEventListener', 'document', 'localStorage', 'sessionStorage'])
      Reflect.deleteProperty(globalThis, name);
  });

  const ids = () => kept.all().map(({ id }) => id);

  function fill(count: number): void {
    for (let n = 0; n < count; n++)
      kept.put({ id: `chat-${n}`, title: 'a title', at: Date.now() - 1_000 + n });
  }

  test('forgotten chats leave their room in the list to others', () => {
    fill(50);
    for (let n = 40; n < 50; n++) kept.remove(`chat-${n}`);
    kept.put({ id: 'new', title: 'a title', at: Date.now() });
    expect(ids()).toHaveLength(41);
    expect(ids()).toContain('chat-0');
  });

  test('a chat is put into the list of its own user alone', () => {
    const { channel, note } = chatsOf(client);
    const said = { ...channel.getSnapshot(), messages: [SECRET], isLoading: false };
    note({ ...said, session: { ...SESSION, user: { id: 'bob', name: 'Bob' } } });
    expect(stored()).toBe('');
    note({ ...said, session: SESSION });
    expect(ids()).toHaveLength(1);
  });

  test('a minute after a chat was forgotten, nothing of it is left', () => {
    fill(2);
    kept.remove('chat-1');
    jest.advanceTimersByTime(MINUTE_MS - 1);
    expect(stored()).toContain('chat-1');
    jest.advanceTimersByTime(1);
    expect(ids()).toEqual(['chat-0']);
    expect(stored()).not.toContain('chat-1');
  });
});
