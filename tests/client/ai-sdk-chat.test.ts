import { describe, expect, test } from '@jest/globals';
import { botChatTransport } from '../../src/client/ai-sdk/bot-chat-transport.ts';
import { type BotClient, RelayError } from '../../src/client/session/bot-client.ts';
import { chatOf, chatStage, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import { startRunsStage } from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

const SUSPEND = 'message/suspend';
const on = chatStage({ JOIN_GRACE_MS: '200' });
const { runs, suspends } = on;
/** A chat whose answer has one word so far, and the run of it. */
const streaming = async (client?: BotClient, settings?: Parameters<typeof chatOf>[1]) =>
  on.streaming(client ?? (await on.stage.signedIn()), settings);

describe('a message', () => {
  test('is answered piece by piece, in the conversation with the id of the chat', async () => {
    const { chat, sent, run } = await streaming();
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You']);
    run.say(' said');
    await until(() => textsOf(chat)[1] === 'assistant: You said');
    run.finish();
    await sent;
    expect([chat.status, chat.error]).toEqual(['ready', undefined]);
    expect(chat.messages[1]?.metadata).toEqual({ requestId: expect.any(String), messageId: 'm1' });
    const other = chatOf(await on.stage.signedIn());
    void other.sendMessage({ text: 'Same' });
    const names = [run, await on.stage.bot.run('Same')].map(({ body }) => body.customChannelId);
    expect(new Set(names).size).toBe(1);
  });

  test('is sent alone, without those before it, with members that the page adds', async () => {
    const { chat, sent, run } = await streaming();
    run.finish();
    await sent;
    const second = chat.sendMessage({ text: 'Again' }, { body: { payload: { a: 1 }, customChannelId: 'x' } });
    const { body, answer } = await on.stage.bot.run('Again');
    expect(body).toMatchObject({ payload: { a: 1 }, customChannelId: run.body.customChannelId });
    expect(JSON.stringify(body)).not.toContain('Hello');
    answer('Yes');
    await second;
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You', 'user: Again', 'assistant: Yes']);
  });

  test('fails with the RelayError itself, and shows what has come', async () => {
    const errors: Error[] = [];
    const { chat, sent, run } = await streaming(undefined, {
      init: { onError: (error) => errors.push(error) },
    });
    run.breakOff();
    await sent;
    expect(chat.status).toBe('error');
    expect(chat.error).toBeInstanceOf(RelayError);
    expect(chat.error).toMatchObject({ code: 'upstream_stream_broken', requestId: expect.any(String) });
    expect(errors).toEqual([chat.error]);
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You']);
  });

  test('fails as what its run says, with the id of the request', async () => {
    const { chat, sent, run } = await streaming();
    run.send({ runError: { error: { message: 'Too many steps.', code: 'STEPS' } } });
    run.finish();
    await sent;
    expect(chat.error).toBeInstanceOf(RelayError);
    expect(chat.error).toMatchObject({
      code: 'STEPS',
      message: 'Too many steps.',
      requestId: expect.any(String),
    });
  });

  test('of nobody fails as unauthenticated, and leaves no empty answer', async () => {
    const client = await on.stage.signedIn();
    await client.signOut();
    const chat = chatOf(client);
    await chat.sendMessage({ text: 'Hello' });
    expect(chat.error).toMatchObject({ code: 'unauthenticated', status: 401 });
    expect(textsOf(chat)).toEqual(['user: Hello']);
  });
});

describe('a stop', () => {
  test('stops the run at the bot service, and then leaves', async () => {
    const calls = heldCalls();
    const answerSuspend = calls.hold(SUSPEND);
    const { chat, sent, run } = await streaming(await on.stage.signedIn({ fetch: calls.fetch }));
    let isGone = false;
    void run.gone.then(() => {
      isGone = true;
    });
    await chat.stop();
    await sent;
    expect([chat.status, chat.error, textsOf(chat)[1]]).toEqual(['ready', undefined, 'assistant: You']);
    await until(() => suspends() === 1);
    // The end of the stream would have come before these.
    await on.stage.signedIn();
    expect(isGone).toBe(false);
    answerSuspend();
    await run.gone;
  });

  test('of a message that was not answered yet stops it, too', async () => {
    const chat = chatOf(await on.stage.signedIn());
    const sent = chat.sendMessage({ text: 'Hello' });
    const { gone } = await on.stage.bot.run('Hello');
    await chat.stop();
    await Promise.all([sent, gone]);
    expect([suspends(), chat.status]).toEqual([1, 'ready']);
  });

  test('holds the next message back until the bot service has answered it', async () => {
    const calls = heldCalls();
    const answerSuspend = calls.hold(SUSPEND);
    const { chat } = await streaming(await on.stage.signedIn({ fetch: calls.fetch }));
    await chat.stop();
    const next = chat.sendMessage({ text: 'Next' });
    // The next message would have come before these.
    await on.stage.signedIn();
    expect(runs()).toEqual(['Hello']);
    answerSuspend();
    (await on.stage.bot.run('Next')).answer('Fine');
    await next;
    expect(textsOf(chat).at(-1)).toBe('assistant: Fine');
  });

  test('of a message that is held back sends nothing', async () => {
    const calls = heldCalls();
    const answerSuspend = calls.hold(SUSPEND);
    const { chat } = await streaming(await on.stage.signedIn({ fetch: calls.fetch }));
    await chat.stop();
    const next = chat.sendMessage({ text: 'Next' });
    await until(() => chat.status === 'submitted');
    await chat.stop();
    await next;
    answerSuspend();
    expect(chat.status).toBe('ready');
    const last = chat.sendMessage({ text: 'Last' });
    (await on.stage.bot.run('Last')).answer('Fine');
    await last;
    expect([runs(), suspends()]).toEqual([['Hello', 'Last'], 1]);
  });

  test('forgets the name of the message, so that a later page does not go on with it', async () => {
    const { store, kept } = memoryStore();
    const calls = heldCalls();
    const answerSuspend = calls.hold(SUSPEND);
    const { chat, run } = await streaming(await on.stage.signedIn({ ids: store, fetch: calls.fetch }));
    expect([...kept.keys()]).toEqual(['bot-relay-messages']);
    await chat.stop();
    // What comes during the suspend has no reader any more.
    run.say(' and', ' more');
    await on.stage.signedIn();
    answerSuspend();
    await run.gone;
    await until(() => kept.size === 0);
  });

  test('that fails is told to the page, and leaves', async () => {
    const errors: RelayError[] = [];
    const offline: typeof fetch = (url, init) =>
      String(url).includes(SUSPEND) ? Promise.reject(new TypeError('offline')) : fetch(url, init);
    const onStopError = (error: RelayError) => errors.push(error);
    const { chat, run } = await streaming(await on.stage.signedIn({ fetch: offline }), { onStopError });
    await chat.stop();
    await run.gone;
    expect([chat.error, errors]).toEqual([undefined, [expect.objectContaining({ code: 'unreachable' })]]);
  });

  test('only leaves where the relay cannot stop runs', async () => {
    const errors: RelayError[] = [];
    const front = await startRunsStage({ JOIN_GRACE_MS: '0' });
    try {
      const chat = chatOf(await front.signedIn(), { onStopError: (error) => errors.push(error) });
      void chat.sendMessage({ text: 'Hello' });
      const run = await front.bot.run('Hello');
      await chat.stop();
      await run.gone;
      expect([chat.status, chat.error, errors]).toEqual(['ready', undefined, []]);
    } finally {
      await front.close();
    }
  });
});

test('leaving the stream of an answer closes the connection and stops no run', async () => {
  const transport = botChatTransport(await on.stage.signedIn());
  const messages = [{ id: '1', role: 'user' as const, parts: [{ type: 'text', text: 'Hello' }] }];
  const stream = await transport.sendMessages({
    ...{ trigger: 'submit-message', chatId: 'my-chat', messageId: undefined, messages },
    abortSignal: undefined,
  });
  const { gone } = await on.stage.bot.run('Hello');
  await stream.cancel();
  await gone;
  expect(suspends()).toBe(0);
});
