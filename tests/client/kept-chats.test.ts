import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { keptChats } from '../../src/client/element/kept-chats.ts';
import { createBotClient } from '../../src/client/session/bot-client.ts';
import { followedSession } from '../../src/client/session/followed-session.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

const MINUTE_MS = 60_000;
const LATER = '2099-01-01T00:00:00Z';
const SESSION = {
  user: { id: 'ada', name: 'Ada' },
  ...{ idleExpiresAt: LATER, absoluteExpiresAt: LATER },
};

let kept: ReturnType<typeof keptChats>;
let stored: () => string;
beforeEach(async () => {
  const { store } = memoryStore();
  const document = { addEventListener() {}, removeEventListener() {}, visibilityState: 'visible' };
  const sessionStorage = memoryStore().store;
  Object.assign(globalThis, { addEventListener() {}, document, localStorage: store, sessionStorage });
  const client = createBotClient({
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
  for (let n = 0; n < count; n++) kept.put({ id: `chat-${n}`, title: 'a title', at: Date.now() - 1_000 + n });
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
