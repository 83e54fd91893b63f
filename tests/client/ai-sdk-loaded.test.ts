import type { Chat } from '@ai-sdk/react';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { UIMessage } from 'ai';
import { loadMessages } from '../../src/client/ai-sdk/bot-chat-transport.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import { chatOf, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import { OTHER_USER, refuseUnhandledRejections, startDemoStage } from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

refuseUnhandledRejections();

let stage: Awaited<ReturnType<typeof startDemoStage>>;
beforeEach(async () => {
  stage = await startDemoStage('echo', { OPERATIONS: 'message,chat', JOIN_GRACE_MS: '5000' });
});
afterEach(() => stage.close());

/** A chat as a page makes it after a reload. */
async function loadedChat(client: BotClient): Promise<Chat<UIMessage>> {
  return chatOf(client, { init: { messages: await loadMessages(client, 'my-chat') } });
}

describe('loadMessages', () => {
  test('has the questions and the answers, in order, and the next answer comes below them', async () => {
    const client = await stage.signedIn();
    await chatOf(client).sendMessage({ text: 'Hello' });
    const chat = await loadedChat(client);
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You said: Hello']);
    await chat.resumeStream();
    await chat.sendMessage({ text: 'Again' });
    expect(textsOf(chat).slice(2)).toEqual(['user: Again', 'assistant: You said: Again']);
  });

  test('has what has come of an answer that is under way, and its whole takes the place of that', async () => {
    const { store } = memoryStore();
    const words = Array.from({ length: 60 }, (_, at) => `word${at}`).join(' ');
    const left = chatOf(await stage.signedIn({ ids: store }));
    await left.sendMessage({ text: 'Hello' });
    void left.sendMessage({ text: words });
    await until(() => `${textsOf(left)[3]}`.includes('word3'));
    const chat = await loadedChat(await stage.signedIn({ ids: store }));
    expect(textsOf(chat).slice(0, 3)).toEqual([
      'user: Hello',
      'assistant: You said: Hello',
      `user: ${words}`,
    ]);
    await chat.resumeStream();
    expect(textsOf(chat).slice(2)).toEqual([`user: ${words}`, `assistant: You said: ${words}`]);
  });

  test('is empty for a new chat, and for another user', async () => {
    const client = await stage.signedIn();
    expect(await loadMessages(client, 'my-chat')).toEqual([]);
    await chatOf(client).sendMessage({ text: 'a secret' });
    expect(await loadMessages(await stage.signedIn({}, OTHER_USER), 'my-chat')).toEqual([]);
  });

  test('fails if nobody is signed in', async () => {
    const client = await stage.signedIn();
    await client.signOut();
    await expect(loadMessages(client, 'my-chat')).rejects.toMatchObject({ name: 'RelayError', status: 401 });
  });

  test('fails if the user signs out meanwhile', async () => {
    const calls = heldCalls();
    const client = await stage.signedIn({ fetch: calls.fetch });
    await chatOf(client).sendMessage({ text: 'a secret' });
    const release = calls.hold('channel/metadata');
    const loaded = loadMessages(client, 'my-chat');
    await until(() => calls.called.some((address) => address.includes('channel/metadata')));
    await client.signOut();
    release();
    await expect(loaded).rejects.toMatchObject({ code: 'session_ended' });
  });
});

test('without the group chat, loadMessages is empty', async () => {
  const bare = await startDemoStage('echo', { OPERATIONS: 'message' });
  try {
    expect(await loadMessages(await bare.signedIn(), 'my-chat')).toEqual([]);
  } finally {
    await bare.close();
  }
});
