import type { Chat } from '@ai-sdk/react';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { UIMessage } from 'ai';
import { botChatTransport, loadMessages } from '../../src/client/ai-sdk/bot-chat-transport.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import { chatOf, chatStage, sayIn, sendIn, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import { type ChannelStage, OTHER_USER, startDemoStage } from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';

const on = chatStage({ JOIN_GRACE_MS: '5000' });
const { runs, suspends } = on;
/** Where the browser keeps the names of messages under way. */
const KEPT = 'bot-relay-messages';

describe('after a reload', () => {
  /** A page that is gone in the middle of an answer; its store has the name of the message. */
  async function leftPage() {
    const { store, kept } = memoryStore();
    return { store, kept, ...(await on.streaming(await on.stage.signedIn({ ids: store }))) };
  }

  test('the chat goes on with the answer, which has run once', async () => {
    const { store, run } = await leftPage();
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    const resumed = chat.resumeStream();
    await until(() => textsOf(chat)[0] === 'assistant: You');
    sayIn(run, ' said');
    run.finish();
    await resumed;
    expect([textsOf(chat), chat.status, chat.error]).toEqual([['assistant: You said'], 'ready', undefined]);
    expect([runs(), suspends()]).toEqual([['Hello'], 0]);
  });

  test('a stop of that answer stops its run', async () => {
    const { store } = await leftPage();
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    void chat.resumeStream();
    await until(() => chat.status === 'streaming');
    await chat.stop();
    await until(() => suspends() === 1);
    expect([textsOf(chat), chat.status]).toEqual([['assistant: You'], 'ready']);
  });

  test('a second call in the same turn takes the place of the first one, and stops nothing', async () => {
    const { store, run } = await leftPage();
    const calls = heldCalls();
    const chat = chatOf(await on.stage.signedIn({ ids: store, fetch: calls.fetch }));
    const both = [chat.resumeStream(), chat.resumeStream()];
    await until(() => textsOf(chat)[0] === 'assistant: You');
    const third = chat.resumeStream();
    await until(() => calls.called.filter((address) => address.includes('message/run')).length === 2);
    sayIn(run, ' said');
    run.finish();
    await Promise.all([...both, third]);
    expect([textsOf(chat), chat.status, chat.error]).toEqual([['assistant: You said'], 'ready', undefined]);
    expect([runs(), suspends()]).toEqual([['Hello'], 0]);
  });

  test('one of two readers that ask at once gets the answer', async () => {
    const { store } = await leftPage();
    const { reconnectToStream } = botChatTransport(await on.stage.signedIn({ ids: store }));
    const asked = [1, 2].map(() => reconnectToStream({ chatId: 'my-chat' }));
    expect(await Promise.all(asked)).toEqual([null, expect.any(ReadableStream)]);
  });

  test('a stop while the relay is asked ends that', async () => {
    const { store } = await leftPage();
    const calls = heldCalls();
    calls.hold('message/run');
    const chat = chatOf(await on.stage.signedIn({ ids: store, fetch: calls.fetch }));
    const resumed = chat.resumeStream();
    await until(() => calls.called.some((address) => address.includes('message/run')));
    await chat.stop();
    await resumed;
    expect([chat.status, chat.error, suspends()]).toEqual(['ready', undefined, 0]);
  });

  test('the answer takes the place of what the page has kept of it', async () => {
    const { store, run, chat: left } = await leftPage();
    const toolCallStart = { processId: 'p', callSeq: 1, toolCall: { toolName: 'clock' } };
    sendIn(run, { toolCallStart });
    await until(() => left.messages[1]?.parts.length === 3);
    const messages = structuredClone(left.messages);
    const chat = chatOf(await on.stage.signedIn({ ids: store }), { init: { messages } });
    const resumed = chat.resumeStream();
    await until(() => chat.status === 'streaming');
    sayIn(run, ' said');
    run.finish();
    await resumed;
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You said']);
  });

  test('an answer that has said nothing yet is waited for', async () => {
    const { store } = memoryStore();
    void chatOf(await on.stage.signedIn({ ids: store })).sendMessage({ text: 'Hello' });
    const run = await on.stage.bot.run('Hello');
    run.begin();
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    const resumed = chat.resumeStream();
    await until(() => chat.status === 'submitted');
    sayIn(run, 'You');
    run.finish();
    await resumed;
    expect(textsOf(chat)).toEqual(['assistant: You']);
  });

  test('the newest of several answers goes on', async () => {
    const { store, chat: left } = await leftPage();
    void left.sendMessage({ text: 'Newer' });
    const newer = await on.stage.bot.run('Newer');
    newer.begin();
    sendIn(newer, deltaOf('Me'), 'run-2');
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    void chat.resumeStream();
    await until(() => textsOf(chat)[0] === 'assistant: Me');
  });

  test('there is nothing to go on with, and nothing is asked, if nothing was left', async () => {
    const calls = heldCalls();
    const { store } = memoryStore();
    const chat = chatOf(await on.stage.signedIn({ ids: store, fetch: calls.fetch }));
    const before = calls.called.length;
    await chat.resumeStream();
    expect([chat.status, chat.error, chat.messages]).toEqual(['ready', undefined, []]);
    expect(calls.called).toHaveLength(before);
  });

  test('an answer that the relay has no more is no error, and its name is forgotten', async () => {
    const { store, kept } = await leftPage();
    const [[at, user, bot, id]] = JSON.parse(`${store.getItem(KEPT)}`);
    store.setItem(KEPT, JSON.stringify([[at, user, bot, id, 'another message']]));
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    await chat.resumeStream();
    expect([chat.status, chat.error, chat.messages]).toEqual(['ready', undefined, []]);
    expect([runs(), kept.size]).toEqual([['Hello'], 0]);
  });
});

/** A chat that its page empties when its user has left, with one word of an answer. */
async function emptied(client: BotClient) {
  let left = 0;
  const begun = await on.streaming(
    client,
    {
      onUserLeft() {
        left += 1;
        begun.chat.messages = [];
        begun.chat.clearError();
      },
    },
    'a secret',
  );
  return { ...begun, left: () => left };
}

describe('a chat whose user leaves', () => {
  const other = (client: BotClient) => client.signIn(OTHER_USER.name, OTHER_USER.password);

  test('is emptied when another user signs in', async () => {
    const client = await on.stage.signedIn();
    const { chat, sent, run, left } = await emptied(client);
    run.finish();
    await sent;
    await other(client);
    expect([left(), textsOf(chat), chat.status]).toEqual([1, [], 'ready']);
    const next = chat.sendMessage({ text: 'Mine' });
    (await on.stage.bot.run('Mine')).answer('Yours');
    await next;
    expect([left(), textsOf(chat)]).toEqual([1, ['user: Mine', 'assistant: Yours']]);
  });

  test.each([
    ['another user signs in', other],
    ['the user signs out', (client: BotClient) => client.signOut()],
  ])('shows nothing of an answer that is under way when %s', async (_, leave) => {
    // The stream that goes on: its connection knows of no end of the session.
    let late: ReadableStreamDefaultController<Uint8Array> | undefined;
    const going: typeof fetch = async (url, init) => {
      if (!String(url).endsWith('message/sse')) return fetch(url, init);
      const { signal: _signal, ...others } = init ?? {};
      const response = await fetch(url, others);
      const reader = response.body?.getReader();
      const body = new ReadableStream<Uint8Array>({
        async start(controller) {
          late = controller;
          const first = await reader?.read();
          if (first?.value) controller.enqueue(first.value);
        },
      });
      return new Response(body, response);
    };
    const client = await on.stage.signedIn({ fetch: going });
    const { chat, sent, left } = await emptied(client);
    await leave(client);
    expect([left(), textsOf(chat)]).toEqual([1, []]);
    const event = { eventType: 'asgard.message.delta', requestId: 'run-1', fact: deltaOf(' and more') };
    late?.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`));
    await sent;
    expect([textsOf(chat), chat.status, chat.error]).toEqual([[], 'ready', undefined]);
  });

  test('looks for no answer any more, without an error', async () => {
    const { store } = memoryStore();
    await emptied(await on.stage.signedIn({ ids: store }));
    const calls = heldCalls();
    calls.hold('message/run');
    const client = await on.stage.signedIn({ fetch: calls.fetch, ids: store });
    const chat = chatOf(client);
    const resumed = chat.resumeStream();
    await until(() => calls.called.some((address) => address.includes('message/run')));
    await other(client);
    await resumed;
    expect([chat.status, chat.error, textsOf(chat)]).toEqual(['ready', undefined, []]);
  });
});

test('an answer that was stopped does not come back while its stop is under way', async () => {
  const calls = heldCalls();
  const answerSuspend = calls.hold('message/suspend');
  const { store } = memoryStore();
  const { chat } = await emptied(await on.stage.signedIn({ fetch: calls.fetch, ids: store }));
  await chat.stop();
  await chat.resumeStream();
  expect([chat.status, textsOf(chat)]).toEqual(['ready', ['user: a secret', 'assistant: You']]);
  expect(calls.called.filter((address) => address.includes('message/run'))).toEqual([]);
  answerSuspend();
});

test('the settled messages of a channel and the answer that goes on are shown once', async () => {
  const { store } = memoryStore();
  const { run } = await emptied(await on.stage.signedIn({ ids: store }));
  const client = await on.stage.signedIn({ ids: store });
  const channel = createChannel(client, { id: 'my-chat' });
  const leave = channel.subscribe(() => {});
  await until(() => channel.getSnapshot().messages.at(-1)?.state === 'streaming');
  await until(() => !channel.getSnapshot().isLoading);
  const messages = channel.getSnapshot().messages.filter(({ state }) => state === 'done');
  const chat = chatOf(client, { init: { messages: [...messages] } });
  const resumed = chat.resumeStream();
  await until(() => chat.status === 'streaming');
  run.finish();
  await resumed;
  expect(textsOf(chat).filter((text) => text.startsWith('assistant'))).toEqual(['assistant: You']);
  leave();
});

/** A chat as a page makes it after a reload. */
async function loadedChat(client: BotClient, id: string): Promise<Chat<UIMessage>> {
  return chatOf(client, { init: { id, messages: await loadMessages(client, id) } });
}

describe('loadMessages', () => {
  let stage: ChannelStage;
  beforeAll(async () => {
    stage = await startDemoStage('echo', { OPERATIONS: 'message,chat', JOIN_GRACE_MS: '5000' });
  });
  afterAll(() => stage.close());
  let count = 0;
  let id: string;
  beforeEach(() => {
    id = `chat-${++count}`;
  });
  const newChat = (client: BotClient) => chatOf(client, { init: { id } });

  test('has the questions and the answers, in order, and the next answer comes below them', async () => {
    const client = await stage.signedIn();
    await newChat(client).sendMessage({ text: 'Hello' });
    const chat = await loadedChat(client, id);
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You said: Hello']);
    await chat.resumeStream();
    await chat.sendMessage({ text: 'Again' });
    expect(textsOf(chat).slice(2)).toEqual(['user: Again', 'assistant: You said: Again']);
  });

  test('has what has come of an answer that is under way, and its whole takes the place of that', async () => {
    const { store } = memoryStore();
    const words = Array.from({ length: 60 }, (_, at) => `word${at}`).join(' ');
    const left = newChat(await stage.signedIn({ ids: store }));
    await left.sendMessage({ text: 'Hello' });
    void left.sendMessage({ text: words });
    await until(() => `${textsOf(left)[3]}`.includes('word3'));
    const chat = await loadedChat(await stage.signedIn({ ids: store }), id);
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
    expect(await loadMessages(client, id)).toEqual([]);
    await newChat(client).sendMessage({ text: 'a secret' });
    expect(await loadMessages(await stage.signedIn({}, OTHER_USER), id)).toEqual([]);
  });

  test('fails if nobody is signed in', async () => {
    const client = await stage.signedIn();
    await client.signOut();
    await expect(loadMessages(client, id)).rejects.toMatchObject({ name: 'RelayError', status: 401 });
  });

  test('fails if the user signs out meanwhile', async () => {
    const calls = heldCalls();
    const client = await stage.signedIn({ fetch: calls.fetch });
    await newChat(client).sendMessage({ text: 'a secret' });
    const release = calls.hold('channel/metadata');
    const loaded = loadMessages(client, id);
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
