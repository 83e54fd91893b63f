import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Channel, ChannelMessage, ChannelOptions } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import {
  allOf,
  type ChannelStage,
  isLoaded,
  isReady,
  refuseUnhandledRejections,
  startDemoStage,
  USER,
} from '../harness/clients/channels.ts';
import { until } from '../harness/clock/until.ts';
import { type CuttingFront, memoryStore, startCuttingFront } from '../harness/faults/cutting-front.ts';

refuseUnhandledRejections();

/** A channel of this client that is subscribed to. */
function opened(client: BotClient, options?: ChannelOptions): Channel {
  const channel = createChannel(client, options);
  channel.subscribe(() => {});
  return channel;
}

describe('with the history of the bot service', () => {
  let stage: ChannelStage;
  beforeEach(async () => {
    stage = await startDemoStage('tools', { OPERATIONS: 'message,chat,files' });
  });
  afterEach(() => stage.close());

  test('a channel shows what was said before, and takes the next message', async () => {
    const first = await stage.channel({ id: 'my-channel' });
    await first.send('Hello');
    await isReady(first);
    const again = await stage.channel({ id: 'my-channel' });
    await isLoaded(again);
    expect(allOf(again)).toEqual(allOf(first));
    const call = again.getSnapshot().messages[1]?.parts.find(({ type }) => type === 'dynamic-tool');
    expect(call).toMatchObject({ state: 'approval-requested', toolName: expect.any(String) });
    await again.send('Next');
    await isReady(again);
    expect(allOf(again)).toHaveLength(4);
    expect(allOf(again).slice(0, 2)).toEqual(allOf(first));
  });

  test('a history that has failed is offered until it is there, but not while an answer is under way', async () => {
    const first = await stage.channel({ id: 'my-channel' });
    await first.send('Hello');
    await isReady(first);
    let isAway = true;
    const own: typeof fetch = async (url, init) => {
      if (isAway && String(url).includes('/channel/metadata')) throw new TypeError('away');
      return fetch(url, init);
    };
    const channel = await stage.channel({ id: 'my-channel' }, { fetch: own });
    const failed = () => channel.getSnapshot().failedHistory;
    await until(() => failed()?.error.code === 'unreachable');
    expect(channel.getSnapshot().error).toBe(failed()?.error);
    isAway = false;
    const answered = channel.send('Again');
    await until(() => channel.getSnapshot().error === undefined);
    failed()?.loadAgain();
    await answered;
    await isReady(channel);
    expect(allOf(channel)).toHaveLength(2);
    failed()?.loadAgain();
    await until(() => allOf(channel).length === 4);
    expect(failed()).toBeUndefined();
  });

  test('a tool call that waits is a part, and consent answers it', async () => {
    const channel = await stage.channel();
    const answer = await channel.send('Hello');
    const call = answer?.parts.find((part) => part.type === 'dynamic-tool');
    expect(call).toMatchObject({ state: 'approval-requested' });
    const reply = await channel.consent(`${call?.toolCallId}`, true);
    expect(reply?.state).toBe('done');
    expect(reply?.parts).toContainEqual(
      expect.objectContaining({ type: 'dynamic-tool', state: 'output-available' }),
    );
    await isReady(channel);
    expect(channel.getSnapshot().messages[1]?.parts).toContainEqual(
      expect.objectContaining({
        state: 'approval-responded',
        approval: { id: call?.toolCallId, approved: true },
      }),
    );
    expect(await channel.consent(`${call?.toolCallId}`, true)).toBeUndefined();
  });

  test('files are uploaded and sent, and what the user thinks is shown', async () => {
    const channel = await stage.channel();
    const parts: number[] = [];
    const file = await channel.upload(new File(['text'], 'a.txt', { type: 'text/plain' }), {
      onProgress: (part) => parts.push(part),
    });
    expect(file).toMatchObject({ type: 'file', filename: 'a.txt', blobId: expect.any(String) });
    expect(parts.at(-1)).toBe(1);
    const answer = await channel.send({ text: 'See', files: file ? [file] : [] });
    expect(answer?.state).toBe('done');
    expect(channel.getSnapshot().messages[0]?.parts).toEqual([{ type: 'text', text: 'See' }, file]);
    expect(await channel.feedback(`${answer?.id}`, 'GOOD')).toBe(true);
    await until(() => channel.getSnapshot().messages[1]?.metadata.verdict === 'GOOD');
  });

  test('reset forgets all, here and at the bot service', async () => {
    const channel = await stage.channel({ id: 'my-channel' });
    await channel.send('Hello');
    expect(await channel.reset()).toBe(true);
    await until(() => allOf(channel).length === 0);
    const again = await stage.channel({ id: 'my-channel' });
    await isLoaded(again);
    expect(allOf(again)).toEqual([]);
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
});

describe('without the history of the bot service', () => {
  test('a channel shows what the page has kept, and has it keep more', async () => {
    const stage = await startDemoStage('echo', { OPERATIONS: 'message' });
    let messages: readonly ChannelMessage[] = [];
    const keep = async (all: readonly ChannelMessage[]) => {
      messages = all;
    };
    const history = { load: async () => messages, save: keep, clear: () => keep([]) };
    try {
      const first = await stage.channel({ id: 'my-channel', messages: history });
      await first.send('Hello');
      await until(() => messages.length === 2);
      const again = await stage.channel({ id: 'my-channel', messages: history });
      await isLoaded(again);
      expect(allOf(again)).toEqual(['user: Hello', 'bot: You said: Hello']);
      await again.send('Next');
      await until(() => messages.length === 4);
      await again.reset();
      await until(() => again.getSnapshot().error?.code === 'operation_not_enabled');
    } finally {
      await stage.close();
    }
  });

  test('reset begins another default channel', async () => {
    const stage = await startDemoStage('echo', { OPERATIONS: 'message' });
    try {
      const channel = await stage.channel();
      await channel.send('Hello');
      const { id } = channel;
      expect(await channel.reset()).toBe(true);
      expect(channel.id).not.toBe(id);
      await until(() => allOf(channel).length === 0);
    } finally {
      await stage.close();
    }
  });
});

describe('an answer', () => {
  let front: CuttingFront;
  beforeAll(async () => {
    front = await startCuttingFront({ OPERATIONS: 'message' });
  });
  afterAll(() => front.close());
  const event = (text: string) =>
    `data: ${JSON.stringify({ eventType: 'asgard.message.delta', requestId: 'run-1', fact: { messageDelta: { message: { messageId: 'm', text } } } })}\n\n`;

  /** A page in which an answer has begun, and how many runs there were since. */
  async function begun(page: () => Promise<Channel>) {
    const before = front.upstream.requests.length;
    const runs = () => front.upstream.requests.length - before;
    const first = await page();
    void first.send('Hello');
    await until(() => runs() > 0);
    front.emit(event('You'));
    await until(() => allOf(first).at(-1) === 'bot: You (streaming)');
    return { first, runs };
  }

  test('goes on after a break and after a reload, and is one run', async () => {
    const { store } = memoryStore();
    const page = async () => {
      const client = front.newClient({ ids: store });
      await client.signIn(USER.name, USER.password);
      return opened(client);
    };
    const { first, runs } = await begun(page);
    front.cut();
    await until(() => first.getSnapshot().status === 'reconnecting');
    await until(() => first.getSnapshot().status === 'streaming');
    const second = await page();
    await until(() => allOf(second).at(-1) === 'bot: You (streaming)');
    front.emit(event(' said'));
    front.finish();
    await until(() => allOf(second).at(-1) === 'bot: You said');
    await until(() => allOf(first).at(-1) === 'bot: You said');
    expect(runs()).toBe(1);
  });
});
