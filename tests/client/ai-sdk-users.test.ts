import { describe, expect, test } from '@jest/globals';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import { problemType } from '../../src/errors.ts';
import { chatOf, chatStage, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import { OTHER_USER } from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';

const on = chatStage({ JOIN_GRACE_MS: '5000' });

/** A chat that its page empties when its user has left, with one word of an answer. */
async function streaming(client: BotClient) {
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
    const { chat, sent, run, left } = await streaming(client);
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
    const { chat, sent, left } = await streaming(client);
    await leave(client);
    expect([left(), textsOf(chat)]).toEqual([1, []]);
    const event = { eventType: 'asgard.message.delta', requestId: 'run-1', fact: deltaOf(' and more') };
    late?.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`));
    await sent;
    expect([textsOf(chat), chat.status, chat.error]).toEqual([[], 'ready', undefined]);
  });

  test('looks for no answer any more, without an error', async () => {
    const { store } = memoryStore();
    await streaming(await on.stage.signedIn({ ids: store }));
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

  test('has the error of an answer that ends with its session, if nobody has left', async () => {
    const { chat, sent, left } = await streaming(await on.stage.signedIn());
    await on.stage.relay.close();
    await sent;
    expect([left(), chat.status, textsOf(chat)]).toEqual([0, 'error', ['user: a secret', 'assistant: You']]);
  });
});

test('an answer that was stopped does not come back while its stop is under way', async () => {
  const calls = heldCalls();
  const answerSuspend = calls.hold('message/suspend');
  const { store } = memoryStore();
  const { chat } = await streaming(await on.stage.signedIn({ fetch: calls.fetch, ids: store }));
  await chat.stop();
  await chat.resumeStream();
  expect([chat.status, textsOf(chat)]).toEqual(['ready', ['user: a secret', 'assistant: You']]);
  expect(calls.called.filter((address) => address.includes('message/run'))).toEqual([]);
  answerSuspend();
});

test('the settled messages of a channel and the answer that goes on are shown once', async () => {
  const { store } = memoryStore();
  const { run } = await streaming(await on.stage.signedIn({ ids: store }));
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

test('a message that surely did not run can be sent again by regenerate, and only that', async () => {
  let isBusy = true;
  const busy: typeof fetch = async (url, init) => {
    if (!isBusy || !String(url).endsWith('message/sse')) return fetch(url, init);
    const problem = { code: 'rate_limited', status: 429, detail: 'Wait.', retryable: 'new message' };
    return Response.json({ type: problemType('rate_limited'), ...problem }, { status: 429 });
  };
  const chat = chatOf(await on.stage.signedIn({ fetch: busy }));
  await chat.sendMessage({ text: 'Hello' });
  expect(chat.error).toMatchObject({ code: 'rate_limited' });
  await chat.regenerate();
  expect(chat.error).toMatchObject({ code: 'rate_limited' });
  isBusy = false;
  const again = chat.regenerate();
  (await on.stage.bot.run('Hello')).answer('You');
  await again;
  expect([textsOf(chat), chat.error]).toEqual([['user: Hello', 'assistant: You'], undefined]);
  await chat.regenerate();
  expect(chat.error).toMatchObject({
    code: 'unsupported',
    message: 'The bot may have run, and cannot take an answer back.',
  });
  // A message would have come before these.
  await on.stage.signedIn();
  expect(on.stage.bot.runs).toHaveLength(1);
});
