import { afterEach, describe, expect, test } from '@jest/globals';
import type { Channel, ChannelMessage, ChannelOptions } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import {
  allOf,
  type ChannelStage,
  endSession,
  isLoaded,
  isOf,
  refuseUnhandledRejections,
  startDemoStage,
  startHistory,
  USER,
} from '../harness/clients/channels.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { chunk, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

refuseUnhandledRejections();

const TURN = ['user: Important', 'bot: You said: Important'];
const ID = { id: 'my-channel' };
let stage: ChannelStage | undefined;
afterEach(() => stage?.close());

const failed = (channel: Channel) => channel.getSnapshot().failedHistory;
/** Everything is shown, and nothing is under way. */
const isAtRest = (channel: Channel) => until(() => ['ready', 'error'].includes(channel.getSnapshot().status));

/** Loads the history again, and resolves when it has taken the place of what was shown. */
async function loadAgain(channel: Channel): Promise<void> {
  const [first] = channel.getSnapshot().messages;
  failed(channel)?.loadAgain();
  await until(() => channel.getSnapshot().messages[0]?.id !== first?.id);
  await isLoaded(channel);
}

/** A channel whose history has failed before a message was sent and answered. `away` says what is away. */
async function answered(operations: string, options: ChannelOptions = {}) {
  stage = await startDemoStage('echo', { OPERATIONS: operations, MAX_BODY_BYTES: '1024' });
  let away = '/channel/metadata';
  const own: typeof fetch = async (url, init) => {
    if (away && String(url).includes(away)) throw new TypeError('away');
    return fetch(url, init);
  };
  const client = await stage.signedIn({ fetch: own });
  const channel = createChannel(client, { ...ID, ...options });
  const leave = channel.subscribe(() => {});
  closers.push(async () => leave());
  await until(() => failed(channel)?.error.code === 'unreachable');
  await channel.send('Important');
  await until(() => allOf(channel).length === 2);
  const comeBack = () => {
    away = '';
  };
  return { channel, client, stage, comeBack };
}

describe('a history that failed before a message was answered', () => {
  test('leaves the message where it is when the bot service has no history', async () => {
    const { channel, comeBack } = await answered('message');
    comeBack();
    failed(channel)?.loadAgain();
    await until(() => failed(channel) === undefined);
    await isLoaded(channel);
    expect(allOf(channel)).toEqual(TURN);
  });

  test('leaves the message where it is while the relay is away, and is offered again', async () => {
    const { channel } = await answered('message');
    const before = failed(channel);
    before?.loadAgain();
    await until(() => failed(channel) !== undefined && failed(channel) !== before);
    expect(failed(channel)?.error.code).toBe('unreachable');
    expect(allOf(channel)).toEqual(TURN);
  });

  test('takes the place of the message, since it has that, but of none that is sent meanwhile', async () => {
    const { channel, comeBack } = await answered('message,chat');
    comeBack();
    const ids = channel.getSnapshot().messages.map(({ id }) => id);
    failed(channel)?.loadAgain();
    await channel.send('Next');
    await until(() => allOf(channel)[3]?.endsWith('Next') === true);
    expect(allOf(channel)).toEqual([...TURN, 'user: Next', 'bot: You said: Next']);
    expect(ids).not.toContain(channel.getSnapshot().messages[0]?.id);
  });

  test('leaves a message that was refused, which it does not have', async () => {
    const { channel, stage, comeBack, client } = await answered('message,chat');
    await endSession(stage.relay);
    await channel.send('Refused');
    await client.signIn(USER.name, USER.password);
    comeBack();
    await loadAgain(channel);
    expect(allOf(channel)).toEqual([...TURN, 'user: Refused', 'bot:  (error)']);
  });

  test('leaves each message that the relay refused where it was, with its state', async () => {
    const { channel, comeBack } = await answered('message,chat');
    const large = 'large '.repeat(200).trim();
    const refused = [`user: ${large}`, 'bot:  (error)'];
    for (const text of [large, 'Next', large]) await channel.send(text);
    const all = [...TURN, ...refused, 'user: Next', 'bot: You said: Next', ...refused];
    await isAtRest(channel);
    expect(allOf(channel)).toEqual(all);
    const before = channel.getSnapshot().messages;
    expect(before[3]?.error).toMatchObject({ code: 'body_too_large', retryable: false });
    comeBack();
    await loadAgain(channel);
    expect(allOf(channel)).toEqual(all);
    const isSame = channel.getSnapshot().messages.map((one, at) => one === before[at]);
    expect(isSame).toEqual([false, false, true, true, false, false, true, true]);
  });

  test('leaves a message that the relay refused above the question after it, though that was asked before', async () => {
    const { channel, comeBack } = await answered('message,chat');
    const large = 'large '.repeat(200).trim();
    for (const text of [large, 'Important']) await channel.send(text);
    const all = [...TURN, `user: ${large}`, 'bot:  (error)', ...TURN];
    await isAtRest(channel);
    expect(allOf(channel)).toEqual(all);
    comeBack();
    await loadAgain(channel);
    expect(allOf(channel)).toEqual(all);
  });

  test('takes the place of a message whose answer the end of the session has cut', async () => {
    const { channel, stage, comeBack, client } = await answered('message,chat');
    const long = 'word '.repeat(100).trim();
    const sent = channel.send(long);
    await until(() => allOf(channel).at(-1)?.startsWith('bot: You said: word') === true);
    await endSession(stage.relay);
    expect((await sent)?.error).toMatchObject({ code: 'session_ended', maybeStarted: true });
    await client.signIn(USER.name, USER.password);
    comeBack();
    await loadAgain(channel);
    expect(allOf(channel).filter((line) => line === `user: ${long}`)).toHaveLength(1);
  });

  test('shows no message that was refused as busy, which was never there', async () => {
    const { channel, comeBack } = await answered('message,chat');
    const sent = channel.send('Next');
    expect(await channel.send('Refused')).toBeUndefined();
    await sent;
    await isAtRest(channel);
    const all = allOf(channel);
    expect(all).toEqual([...TURN, 'user: Next', 'bot: You said: Next']);
    comeBack();
    await loadAgain(channel);
    expect(allOf(channel)).toEqual(all);
  });

  test('is put before the message where the page keeps it, and the page keeps both', async () => {
    const old = { id: 'old', role: 'user', state: 'done', metadata: {} } as const;
    let kept: readonly ChannelMessage[] = [{ ...old, parts: [{ type: 'text', text: 'Before' }] }];
    const history = {
      load: async () => kept,
      save: async (all: readonly ChannelMessage[]) => {
        kept = all;
      },
      clear: async () => {},
    };
    const { channel, stage, comeBack } = await answered('message', { messages: history });
    expect(kept).toHaveLength(1);
    comeBack();
    failed(channel)?.loadAgain();
    await until(() => allOf(channel).length === 3);
    expect(allOf(channel)).toEqual(['user: Before', ...TURN]);
    const again = await stage.channel({ ...ID, messages: history });
    await isLoaded(again);
    expect(allOf(again)).toEqual(['user: Before', ...TURN]);
  });
});

/** A page whose live history says `Hello` and goes on, and what the relay is asked. */
async function following() {
  const hello = `id: 1\ndata: ${JSON.stringify({
    eventType: 'asgard.message.user',
    requestId: 'A',
    fact: { messageUser: { text: 'Hello' } },
  })}\n\n`;
  const lives: { destroy(): void }[] = [];
  const { relay, close } = await startHistory(
    (socket) => {
      socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(`retry: 1\n${hello}`)]));
      lives.push(socket);
    },
    { OPERATIONS: 'message,chat' },
  );
  const errors: string[] = [];
  const client = testClient({
    ...{ baseUrl: relay.url, namespace: 'acme', botProviderName: 'helper' },
  });
  await client.signIn(USER.name, USER.password);
  const channel = createChannel(client, { ...ID, onError: ({ code }) => errors.push(code) });
  const leave = channel.subscribe(() => {});
  closers.push(async () => {
    leave();
    await close();
  });
  return { channel, client, relay, errors, lives };
}
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

describe('a history that has shown all and then ends', () => {
  test('with the session is no failure, and begins again when the same user is back', async () => {
    const { channel, client, relay, errors, lives } = await following();
    await until(() => allOf(channel).length === 1);
    await isLoaded(channel);
    await endSession(relay);
    for (const live of lives) live.destroy();
    await isOf(channel, null);
    expect(allOf(channel)).toEqual(['user: Hello']);
    expect([failed(channel), channel.getSnapshot().error, errors]).toEqual([undefined, undefined, []]);
    const before = lives.length;
    await client.signIn(USER.name, USER.password);
    await until(() => lives.length > before);
    await isLoaded(channel);
    expect(allOf(channel)).toEqual(['user: Hello']);
    expect([failed(channel), channel.getSnapshot().error, errors]).toEqual([undefined, undefined, []]);
  });

  test('without a connection is an error, and nothing is missing', async () => {
    const { channel, relay, errors } = await following();
    await until(() => allOf(channel).length === 1);
    await isLoaded(channel);
    await relay.close();
    await until(() => errors.length > 0);
    expect(failed(channel)).toBeUndefined();
    expect(allOf(channel)).toEqual(['user: Hello']);
  });
});
