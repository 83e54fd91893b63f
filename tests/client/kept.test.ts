import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { chatRows, defaultChannels, lastBot } from '../../src/client/channel/default-channel.ts';
import { keptChats } from '../../src/client/element/kept-chats.ts';
import { followedSession } from '../../src/client/session/followed-session.ts';
import { forgetKept } from '../../src/client/session/kept.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

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
  let kept: ReturnType<typeof keptChats>;
  let stored: () => string;
  beforeEach(async () => {
    const { store } = memoryStore();
    const document = { addEventListener() {}, removeEventListener() {}, visibilityState: 'visible' };
    const sessionStorage = memoryStore().store;
    Object.assign(globalThis, { addEventListener() {}, document, localStorage: store, sessionStorage });
    const client = testClient({
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
