import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { ChannelKey, ChannelMessage, MessageStorage } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
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
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

refuseUnhandledRejections();

const SECRET: ChannelMessage = {
  ...{ id: '1', role: 'user', state: 'done', metadata: {} },
  parts: [{ type: 'text', text: 'secret' }],
};
let stage: ChannelStage;
beforeEach(async () => {
  stage = await startDemoStage('echo', { OPERATIONS: 'message,files' });
});
afterEach(() => stage.close());

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
  const chat = await startDemoStage('echo', { OPERATIONS: 'message,chat' });
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
  await chat.close();
});

test('a reset that ends after another user has come leaves their messages alone', async () => {
  const chat = await startDemoStage('echo', { OPERATIONS: 'message,chat' });
  const calls = heldCalls();
  const client = await chat.signedIn({ fetch: calls.fetch });
  const channel = createChannel(client, { id: 'my-channel' });
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
  await chat.close();
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
