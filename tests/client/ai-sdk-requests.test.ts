import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { lastAssistantMessageIsCompleteWithApprovalResponses as allDecided } from 'ai';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { RelayError } from '../../src/client/session/bot-client.ts';
import { chatOf, chatStage, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import {
  type ChannelStage,
  OTHER_USER,
  startDemoStage,
  startRunsStage,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';

const on = chatStage({ JOIN_GRACE_MS: '5000' });
const { runs } = on;

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

  let files: ChannelStage;
  beforeEach(async () => {
    files = await startDemoStage('echo', { OPERATIONS: 'message,files' });
  });
  afterEach(() => files.close());
  /** A chat that counts its uploads. */
  async function uploading() {
    const calls = heldCalls();
    const client = await files.signedIn({ fetch: calls.fetch });
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
    const client = await files.signedIn({ fetch: calls.fetch });
    const chat = chatOf(client);
    const sent = chat.sendMessage({ text: 'a secret', files: [DATA] });
    await files.relay.logLine(({ route, status }) => `${route}`.endsWith('/blob') && status === 200);
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
    const tools = await startDemoStage('tools', { OPERATIONS: 'message,chat' });
    const calls = heldCalls();
    const init = sendAutomaticallyWhen ? { sendAutomaticallyWhen } : {};
    const chat = chatOf(await tools.signedIn({ fetch: calls.fetch }), { init });
    await chat.sendMessage({ text: 'What time is it?' });
    const call = chat.messages[1]?.parts.find(({ type }) => type === 'dynamic-tool');
    if (call?.type !== 'dynamic-tool' || call.state !== 'approval-requested')
      throw new Error('it does not wait');
    const sends = () => calls.called.filter((address) => address.endsWith('message/sse')).length;
    return { ...tools, chat, sends, id: call.approval.id };
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
    const { chat, id, sends, close } = await asked(allDecided);
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
    await close();
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
    const { chat, id, sends, close } = await asked();
    await chat.sendMessage();
    expect(chat.error).toMatchObject({ code: 'unsupported', message: expect.stringMatching(/still waits/) });
    await chat.addToolApprovalResponse({ id, approved: true });
    expect(sends()).toBe(1);
    await chat.sendMessage();
    expect([sends(), textsOf(chat).at(-1)]).toEqual([2, expect.stringMatching(/It is/)]);
    await close();
  });
});

test('the messages of a channel are those of a chat', async () => {
  const channel = createChannel(await on.stage.signedIn());
  const sent = channel.send('Hello');
  (await on.stage.bot.run('Hello')).answer('You');
  await sent;
  await until(() => channel.getSnapshot().messages.length === 2);
  const chat = chatOf(await on.stage.signedIn(), { init: { messages: [...channel.getSnapshot().messages] } });
  expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You']);
});
