import type { Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { textOf } from '../../src/client/channel/channel-state.ts';
import type { ChannelOptions } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import { startHistory } from '../harness/clients/channels.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { USER } from '../harness/relay/relay.ts';
import { typeOf } from '../harness/service/bot-runs.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const eventOf = (fact: object, id?: number) =>
  `${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify({ eventType: typeOf(fact), requestId: 'A', fact })}\n\n`;

/** A bot service with one conversation, whose live streams never end. */
let service: Awaited<ReturnType<typeof startHistory>>;
const live = new Set<Socket>();
/** How many live streams were opened so far. */
let opened = 0;
/** Whether a run is under way, which says a word again and again. */
let isRunning = false;
let messages = 0;
let suspends = 0;
beforeAll(async () => {
  service = await startHistory((socket, { requestLine }) => {
    if (requestLine.includes('/suspend')) {
      suspends += 1;
      return void socket.write(jsonAnswer('200 OK', {}));
    }
    socket.write(STREAM_HEAD);
    if (requestLine.startsWith('POST')) {
      messages += 1;
      return void socket.write(Buffer.concat([chunk(eventOf({ runDone: {} })), Buffer.from(LAST_CHUNK)]));
    }
    opened += 1;
    live.add(socket);
    socket.write(chunk(eventOf({ messageUser: { text: 'Hello' } }, 1)));
    const word = () =>
      isRunning && socket.write(chunk(eventOf({ messageDelta: { message: { text: 'word ' } } })));
    const words = setInterval(word, 50);
    socket.on('close', () => {
      clearInterval(words);
      live.delete(socket);
    });
  });
});
const clients: BotClient[] = [];
afterAll(async () => {
  // A page that is left follows a run until its end.
  for (const client of clients) await client.signOut();
  await service.close();
});

/** A page that shows the conversation. Its session is known when `release` was called. */
async function signedInPage(options: ChannelOptions = {}) {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const client = testClient({
    ...{ baseUrl: service.relay.url, namespace: 'acme', botProviderName: 'helper' },
    async fetch(url, init) {
      if (String(url).endsWith('/auth/session')) await released;
      return fetch(url, init);
    },
  });
  clients.push(client);
  await client.signIn(USER.name, USER.password);
  const channel = createChannel(client, { id: 'c', ...options });
  return { ...channel, snapshot: channel.getSnapshot, release };
}

test('a channel that is dropped before its session is known opens no live stream', async () => {
  const dropped = await signedInPage({ expert: { gcMs: 0 } });
  dropped.subscribe(() => {})();
  // The timer that drops it was set before this one.
  await new Promise((resolve) => setTimeout(resolve, 0));
  dropped.release();
  // The stream of a page that is shown comes after one of the page that was dropped.
  const shown = await signedInPage({ expert: { gcMs: 0 } });
  shown.release();
  const leave = shown.subscribe(() => {});
  await until(() => shown.snapshot().messages.length === 1);
  expect(dropped.snapshot().messages).toEqual([]);
  expect(opened).toBe(1);
  leave();
  await until(() => live.size === 0);
});

test('a channel that is dropped and shown again follows its conversation again, and shows each message once', async () => {
  const before = opened;
  const { subscribe, release, snapshot } = await signedInPage({ expert: { gcMs: 0 } });
  release();
  for (const times of [1, 2]) {
    const leave = subscribe(() => {});
    await until(() => opened === before + times);
    await until(() => snapshot().messages.length === 1);
    leave();
    await until(() => live.size === 0);
  }
  const leave = subscribe(() => {});
  await until(() => opened === before + 3 && snapshot().messages.length === 1);
  for (const socket of live) socket.write(chunk(eventOf({ messageUser: { text: 'Bye' } }, 2)));
  await until(() => snapshot().messages.map(textOf).includes('Bye'));
  expect(snapshot().messages.map(textOf)).toEqual(['Hello', 'Bye']);
  leave();
  await until(() => live.size === 0);
});

test('a message that waits while a run streams is not sent after a stop, which stops the run', async () => {
  isRunning = true;
  const { subscribe, release, snapshot, send, stop } = await signedInPage({ whileBusy: 'queue' });
  release();
  const leave = subscribe(() => {});
  await until(() => snapshot().status === 'streaming');
  const sent = send('Again');
  await stop();
  expect(await sent).toBeUndefined();
  await until(() => suspends === 1);
  await until(() => snapshot().status === 'ready');
  await send('Last');
  expect(messages).toBe(1);
  leave();
});

test('a message is refused as busy while a run streams that was begun before', async () => {
  isRunning = true;
  const { subscribe, release, snapshot, send } = await signedInPage();
  release();
  const leave = subscribe(() => {});
  await until(() => snapshot().status === 'streaming');
  const before = messages;
  expect(await send('Hello')).toBeUndefined();
  await until(() => snapshot().error?.code === 'busy');
  expect(messages).toBe(before);
  expect(snapshot().status).toBe('streaming');
  leave();
});
