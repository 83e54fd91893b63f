import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { lastAssistantMessageIsCompleteWithApprovalResponses as allDecided } from 'ai';
import { botChatTransport } from '../../src/client/ai-sdk/bot-chat-transport.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { type BotClient, RelayError } from '../../src/client/session/bot-client.ts';
import { problemType } from '../../src/errors.ts';
import { chatOf, chatStage, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import {
  type ChannelStage,
  OTHER_USER,
  startDemoStage,
  startRunsStage,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

const SUSPEND = 'message/suspend';
const on = chatStage({ JOIN_GRACE_MS: '200' });
const { runs, suspends } = on;
let demo: ChannelStage;
let count = 0;
beforeAll(async () => {
  demo = await startDemoStage('echo', { BOTS: 'demo/*', OPERATIONS: 'message,chat,files' });
});
afterAll(() => demo.close());

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
  /** A chat whose answer streams. The bot service answers a stop only once `answerSuspend` is called. */
  async function heldStop(options: Parameters<typeof on.stage.signedIn>[0] = {}) {
    const calls = heldCalls();
    const answerSuspend = calls.hold(SUSPEND);
    const client = await on.stage.signedIn({ ...options, fetch: calls.fetch });
    return { ...(await streaming(client)), answerSuspend };
  }

  test('stops the run at the bot service, and then leaves', async () => {
    const { chat, sent, run, answerSuspend } = await heldStop();
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
    const { chat, answerSuspend } = await heldStop();
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
    const { chat, answerSuspend } = await heldStop();
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
    const { chat, run, answerSuspend } = await heldStop({ ids: store });
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

/** A chat with one answer. */
async function answered(options?: Parameters<typeof chatOf>[1]) {
  const chat = chatOf(await on.stage.signedIn(), options);
  const sent = chat.sendMessage({ text: 'Hello' });
  (await on.stage.bot.run('Hello')).answer('You');
  await sent;
  return chat;
}

describe('what the bot service cannot do is refused, and sends nothing', () => {
  test.each([
    [
      'a changed message',
      /cannot be changed/,
      (chat: ReturnType<typeof chatOf>) =>
        chat.sendMessage({ text: 'Hi', messageId: `${chat.messages[0]?.id}` }),
    ],
    ['another answer', /cannot take an answer back/, (chat: ReturnType<typeof chatOf>) => chat.regenerate()],
    [
      'a chat without a new message',
      /nothing to send/,
      (chat: ReturnType<typeof chatOf>) => chat.sendMessage(),
    ],
    [
      'a file at an address',
      /Only files from this device/,
      (chat: ReturnType<typeof chatOf>) =>
        chat.sendMessage({
          files: [{ type: 'file', mediaType: 'image/png', url: 'https://example.com/a.png' }],
        }),
    ],
  ])('%s', async (_, message, act) => {
    const chat = await answered();
    await act(chat);
    expect(chat.error).toBeInstanceOf(RelayError);
    expect(chat.error).toMatchObject({
      code: 'unsupported',
      status: 0,
      message: expect.stringMatching(message),
    });
    expect(runs()).toEqual(['Hello']);
  });
});

test('another answer is a new run of the same message where the page allows it', async () => {
  const chat = await answered({ regenerate: 'new-run' });
  const again = chat.regenerate();
  await until(() => runs().length === 2);
  const [first, second] = on.stage.bot.runs;
  expect(second?.body.customChannelId).toBe(first?.body.customChannelId);
  expect(second?.text).toBe('Hello');
  second?.answer('Me');
  await again;
  expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: Me']);
});

describe('a file of the user', () => {
  const DATA = {
    type: 'file',
    mediaType: 'text/plain',
    filename: 'a.txt',
    url: 'data:text/plain;base64,w6Q=',
  } as const;

  /** A chat that counts its uploads. */
  async function uploading() {
    const calls = heldCalls();
    const client = await demo.signedIn({ fetch: calls.fetch });
    const uploads = () => calls.called.filter((address) => address.endsWith('/blob')).length;
    return { client, chat: chatOf(client), uploads };
  }

  test('is uploaded first, and its message names it', async () => {
    const { chat, uploads } = await uploading();
    await chat.sendMessage({ text: 'See', files: [DATA, { ...DATA, filename: 'b.txt' }] });
    expect([chat.error, textsOf(chat)[1]]).toEqual([
      undefined,
      'assistant: You said: See You sent: a.txt, b.txt',
    ]);
    expect(uploads()).toBe(2);
  });

  test('that a channel has uploaded is not uploaded again', async () => {
    const { client, chat, uploads } = await uploading();
    const part = await createChannel(client, { id: 'my-chat' }).upload(new File(['ä'], 'c.txt'));
    if (!part) throw new Error('it was not uploaded');
    await chat.sendMessage({ text: 'See', files: [part] });
    expect([textsOf(chat)[1], uploads()]).toEqual(['assistant: You said: See You sent: c.txt', 1]);
  });

  test('reaches the bot service byte for byte', async () => {
    const chat = chatOf(await on.stage.signedIn());
    void chat.sendMessage({ files: [DATA] });
    const isUpload = ({ requestLine }: { requestLine: string }) => requestLine.includes('/blob');
    await until(() => on.stage.bot.upstream.requests.some(isUpload));
    const { body } = on.stage.bot.upstream.requests.find(isUpload) ?? {};
    expect(`${body}`).toMatch(/filename="a.txt"\r\nContent-Type: text\/plain\r\n\r\nä\r\n/i);
  });

  test('is not sent by another user who signs in while it is uploaded', async () => {
    const calls = heldCalls();
    const finishUpload = calls.hold('/blob');
    const client = await demo.signedIn({ fetch: calls.fetch });
    const chat = chatOf(client);
    const uploaded = () =>
      demo.relay.logs.filter(({ route, status }) => `${route}`.endsWith('/blob') && status === 200);
    const before = uploaded().length;
    const sent = chat.sendMessage({ text: 'a secret', files: [DATA] });
    await until(() => uploaded().length > before);
    await client.signIn(OTHER_USER.name, OTHER_USER.password);
    finishUpload();
    await sent;
    expect(chat.error).toMatchObject({ code: 'session_ended', status: 401 });
    expect(calls.called.filter((address) => address.endsWith('message/sse'))).toEqual([]);
  });

  test('that the relay does not take is an error, and the message is not sent', async () => {
    const noFiles = await startRunsStage();
    try {
      const chat = chatOf(await noFiles.signedIn());
      await chat.sendMessage({ text: 'See', files: [DATA] });
      expect(chat.error).toMatchObject({ code: 'operation_not_enabled' });
      expect(noFiles.bot.runs).toEqual([]);
    } finally {
      await noFiles.close();
    }
  });
});

describe('a tool call that waits for the user', () => {
  /** A chat in which the bot asks whether it may look at the clock. */
  async function asked(sendAutomaticallyWhen?: typeof allDecided) {
    const calls = heldCalls();
    // Each conversation is another one: what is allowed from now on is remembered in it.
    const init = { id: `chat-${++count}`, ...(sendAutomaticallyWhen && { sendAutomaticallyWhen }) };
    const chat = chatOf(await demo.signedIn({ botProviderName: 'tools', fetch: calls.fetch }), { init });
    await chat.sendMessage({ text: 'What time is it?' });
    const call = chat.messages[1]?.parts.find(({ type }) => type === 'dynamic-tool');
    if (call?.type !== 'dynamic-tool' || call.state !== 'approval-requested')
      throw new Error('it does not wait');
    const sends = () => calls.called.filter((address) => address.endsWith('message/sse')).length;
    return { chat, sends, id: call.approval.id };
  }
  const states = ({ messages }: ReturnType<typeof chatOf>) =>
    messages.flatMap(({ parts }) =>
      parts.flatMap((part) => (part.type === 'dynamic-tool' ? [part.state] : [])),
    );

  test.each([
    ['allowed', { approved: true }, /It is \d\d:\d\d in UTC/, ['approval-responded', 'output-available']],
    [
      'allowed from now on',
      { approved: true, reason: 'always' },
      /It is/,
      ['approval-responded', 'output-available'],
    ],
    ['denied', { approved: false }, /Then I do not know/, ['approval-responded']],
  ] as const)('is %s, in the same message, with one run', async (_, decision, text, shown) => {
    const { chat, id, sends } = await asked(allDecided);
    await chat.addToolApprovalResponse({ id, ...decision });
    await until(() => sends() === 2 && chat.status === 'ready');
    expect(textsOf(chat)).toEqual(['user: What time is it?', expect.stringMatching(text)]);
    expect([states(chat), chat.error]).toEqual([shown, undefined]);
    // Nothing of it is decided again.
    await chat.sendMessage();
    expect([sends(), chat.error]).toEqual([2, expect.objectContaining({ code: 'unsupported' })]);
    if ('reason' in decision) {
      await chat.sendMessage({ text: 'And now?' });
      expect(textsOf(chat).at(-1)).toMatch(/It is/);
    }
  });

  test('is decided once, also if its run says nothing', async () => {
    const chat = chatOf(await on.stage.signedIn(), { init: { sendAutomaticallyWhen: allDecided } });
    const sent = chat.sendMessage({ text: 'Hello' });
    const run = await on.stage.bot.run('Hello');
    run.begin();
    run.send({ toolCallConsent: { pendingCalls: [{ toolCallId: 'call-1', toolName: 'clock' }] } });
    run.finish();
    await sent;
    await chat.addToolApprovalResponse({ id: 'call-1', approved: false });
    const reply = await on.stage.bot.run('');
    expect(reply.body).toMatchObject({ toolCallConsents: [{ toolCallId: 'call-1', result: 'DENY_ONCE' }] });
    reply.begin();
    reply.finish();
    await until(() => chat.status === 'ready');
    const last = chat.sendMessage({ text: 'Last' });
    (await on.stage.bot.run('Last')).answer('Fine');
    await last;
    expect([runs(), chat.error]).toEqual([['Hello', '', 'Last'], undefined]);
  });

  test('is decided after another message, too', async () => {
    const chat = chatOf(await on.stage.signedIn());
    const sent = chat.sendMessage({ text: 'Hello' });
    const run = await on.stage.bot.run('Hello');
    run.begin();
    run.send({ toolCallConsent: { pendingCalls: [{ toolCallId: 'call-1', toolName: 'clock' }] } });
    run.finish();
    await sent;
    const other = chat.sendMessage({ text: 'Wait' });
    (await on.stage.bot.run('Wait')).answer('Well');
    await other;
    await chat.addToolApprovalResponse({ id: 'call-1', approved: true });
    const decided = chat.sendMessage();
    (await on.stage.bot.run('')).answer('Noon');
    await decided;
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: Noon', 'user: Wait', 'assistant: Well']);
  });

  test('is sent by the page where the AI SDK does not send it by itself', async () => {
    const { chat, id, sends } = await asked();
    await chat.sendMessage();
    expect(chat.error).toMatchObject({ code: 'unsupported', message: expect.stringMatching(/still waits/) });
    await chat.addToolApprovalResponse({ id, approved: true });
    expect(sends()).toBe(1);
    await chat.sendMessage();
    expect([sends(), textsOf(chat).at(-1)]).toEqual([2, expect.stringMatching(/It is/)]);
  });
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
