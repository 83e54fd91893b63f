import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Channel, ChannelMessage, ChannelOptions } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { createBotClient } from '../../src/client/session/bot-client.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { call } from '../harness/clients/call.ts';
import { allOf, isLoaded, isReady, refuseUnhandledRejections } from '../harness/clients/channels.ts';
import { FORM_TYPE, formOf, textPart } from '../harness/clients/forms.ts';
import { dechunk, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { type FaultProxy, faultProxy } from '../harness/faults/fault-proxy.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { demoEvents, textsOf, typesOf as typesIn, wholeMessages } from '../harness/service/demo-service.ts';
import { chatChunk, modelSettings } from '../harness/service/model-fixtures.ts';
import {
  dataStream,
  type ModelRequest,
  type ModelServer,
  startModelServer,
} from '../harness/service/model-server.ts';

refuseUnhandledRejections();

const BOT = { namespace: 'demo', botProviderName: 'assistant' };
const BASE = '/ns/demo/bot-provider/assistant';
const MESSAGE_ID = 'message-0123456789abcdef';
const PNG = 'iVBORw0KGgo=';

let server: ModelServer;
let service: BotService;
let between: FaultProxy;
let relay: TestRelay;
let cookie: string;
/** The questions that have reached the model, each with what answers it. */
let questions: Question[];
const leaves: (() => void)[] = [];

beforeEach(async () => {
  questions = [];
  server = await startModelServer();
  server.answer = (request, res) => void questions.push(questionOf(request, res));
  const assistant = modelSettings('openai-compatible', { endpoint: `${server.url}/v1` });
  service = await startBotService({ keys: [CANARY.key], assistant, limit: 1000 });
  between = await faultProxy(service.url);
  relay = await startRelay(between.url, { BOTS: 'demo/assistant', OPERATIONS: 'message,chat,files' });
  cookie = await relay.signIn();
});
afterEach(async () => {
  for (const leave of leaves.splice(0)) leave();
  await relay.close();
  between.close();
  await service.close();
  await server.close();
});

type Question = ReturnType<typeof questionOf>;

/** A question to the model, which the test answers piece by piece. */
function questionOf({ body }: ModelRequest, res: ServerResponse) {
  res.writeHead(200, { 'Content-Type': 'text/event-stream' }).flushHeaders();
  const send = (delta: object, reason?: string) => res.write(dataStream(chatChunk(delta, reason)).body);
  const end = (reason: string) => {
    send({}, reason);
    res.end(dataStream('[DONE]').body);
  };
  return {
    /** What the model is told, without its instructions. */
    messages: (body.messages as { role: string; content: unknown }[]).slice(1),
    isLeft: () => res.destroyed && !res.writableFinished,
    say: (content: string) => send({ content }),
    done: () => end('stop'),
    callClock() {
      const call = {
        id: 'call_1',
        type: 'function',
        function: { name: 'clock', arguments: '{"zone":"UTC"}' },
      };
      send({ tool_calls: [{ index: 0, ...call }] });
      end('tool_calls');
    },
  };
}

/** The n-th question, from 1 on, once it has come. */
async function question(number: number): Promise<Question> {
  await until(() => questions.length >= number);
  return questions[number - 1] as Question;
}

const body = (text: string, more: object = {}) =>
  JSON.stringify({ text, customChannelId: 'c1', customMessageId: MESSAGE_ID, action: 'NONE', ...more });
const message = (text: string, more: object = {}, headers: string[] = []) =>
  rawMessage({
    path: `${BASE}/message/sse`,
    cookie,
    body: body(text, more),
    headers: ['Connection: close', ...headers],
  });
const send = (text: string, more: object = {}, headers: string[] = []) =>
  rawClient(relay.port, message(text, more, headers));
const ask = (operation: string, more: { body?: string | Buffer; headers?: object } = {}) => {
  const [method = '', path = ''] = operation.split(' ');
  const headers = { 'Content-Type': 'application/json', Cookie: cookie, ...more.headers };
  return call(relay.port, `${BASE}/${path}`, { method, headers, ...(more.body && { body: more.body }) });
};
/** The whole stream that a raw client has got. */
async function streamOf(client: ReturnType<typeof rawClient>): Promise<string> {
  await client.closed;
  const { body, complete } = dechunk(client.text());
  expect(complete).toBe(true);
  return body;
}
const typesOf = (stream: string) => typesIn(demoEvents(stream));
const history = async () => (await ask('GET message/sse?custom_channel_id=c1')).body;
const said = (stream: string) => textsOf(demoEvents(stream));

describe('a page of its own, in front of a bot with a model', () => {
  test('gets the answer byte for byte, and after a reload and in a second tab the same', async () => {
    const wire = between.record();
    const page = send('Hello');
    const asked = await question(1);
    asked.say('Good ');
    await page.waitFor('Good ');
    const byName = `GET ${BASE}/message/run?custom_channel_id=c1&custom_message_id=${MESSAGE_ID} HTTP/1.1`;
    const head = [byName, 'Host: app.example.com', `Cookie: ${cookie}`, 'Connection: close'];
    const reloaded = rawClient(relay.port, `${head.join('\r\n')}\r\n\r\n`);
    await reloaded.waitFor('Good ');
    page.socket.destroy();
    const secondTab = send('Hello');
    await secondTab.waitFor('Good ');
    asked.say('morning.');
    asked.done();
    const streams = [await streamOf(reloaded), await streamOf(secondTab)];
    const sent = wire.flatMap(({ by, text }) => (by === 'server' ? [text] : [])).join('');
    const [, upstreamId = ''] = /"customChannelId":"([0-9a-f]{64})"/.exec(sent) ?? [];
    const bytes = dechunk(sent).body.replaceAll(upstreamId, 'c1');
    expect(typesOf(bytes)).toEqual([
      ...['run.init', 'message.start', 'message.delta', 'message.delta', 'message.complete', 'run.done'],
    ]);
    expect(streams).toEqual([bytes, bytes]);
    expect(questions).toHaveLength(1);
  });

  test('gets a tool call, and goes on behind its last event in mid-answer and after the end', async () => {
    const page = send('What time is it?');
    const first = await question(1);
    first.say('Let me look.');
    first.callClock();
    const second = await question(2);
    await page.waitFor('message.complete');
    expect(second.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
    const [, id = ''] =
      /\nid: (\d+)\n(?=event: asgard\.message\.complete)/.exec(page.text().replaceAll('\r', '')) ?? [];
    expect(page.text()).toMatch(/tool_call\.start[\s\S]*tool_call\.complete[\s\S]*message\.complete/);
    page.socket.destroy();
    const resumed = send('What time is it?', {}, [`Last-Event-ID: ${id}`]);
    second.say('It is noon.');
    second.done();
    const stream = await streamOf(resumed);
    expect(typesOf(stream).filter((type) => type !== 'message.delta')).toEqual([
      ...['message.start', 'message.complete', 'run.done'],
    ]);
    expect(said(stream)).toEqual(['It is noon.']);
    expect(await streamOf(send('What time is it?', {}, [`Last-Event-ID: ${id}`]))).toBe(stream);
    expect(said(await history())).toEqual(['Let me look.', 'It is noon.']);
    expect(questions).toHaveLength(2);
  });

  test('stops an answer, which stays in the history, and asks again', async () => {
    const page = send('Tell me a story');
    const asked = await question(1);
    asked.say('Once upon a time');
    await page.waitFor('Once upon');
    expect((await ask('POST message/suspend?custom_channel_id=c1')).status).toBe(200);
    const stopped = await streamOf(page);
    expect(typesOf(stopped).slice(-2)).toEqual(['message.complete', 'run.done']);
    expect(demoEvents(stopped).at(-2)?.fact.messageComplete?.message).toMatchObject({ isStopped: true });
    await until(asked.isLeft);
    const again = send('Tell me a story', { customMessageId: `${MESSAGE_ID}-2` });
    const anew = await question(2);
    expect(anew.messages).toMatchObject([
      { role: 'user', content: 'Tell me a story' },
      { role: 'assistant', content: expect.stringMatching(/^Once upon a time\n\n\[The user stopped/) },
      { role: 'user', content: 'Tell me a story' },
    ]);
    anew.say('There was a fox.');
    anew.done();
    await streamOf(again);
    expect(said(await history())).toEqual(['Once upon a time', 'There was a fox.']);
  });

  test('sends a file, rates the answer, and finds all of it after a reload, until it resets', async () => {
    const head = [
      'Content-Disposition: form-data; name="file"; filename="dot.png"',
      'Content-Type: image/png',
    ];
    const form = formOf([{ head, body: Buffer.from(PNG, 'base64') }, textPart('c1')]);
    const uploaded = await ask('POST blob', { body: form, headers: { 'Content-Type': FORM_TYPE } });
    const [{ blobId = '' } = {}] = (JSON.parse(uploaded.body) as { data: { blobId: string }[] }).data;
    const page = send('What is this?', { blobIds: [blobId] });
    const asked = await question(1);
    expect(asked.messages).toEqual([
      {
        role: 'user',
        content: [
          { type: 'text', text: 'What is this?' },
          { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
        ],
      },
    ]);
    asked.say('A dot.');
    asked.done();
    const [answer] = wholeMessages(demoEvents(await streamOf(page)));
    const feedback = { customChannelId: 'c1', messageId: answer?.messageId, verdict: 'GOOD', comment: '' };
    expect((await ask('POST message/feedback', { body: JSON.stringify(feedback) })).status).toBe(200);
    const past = demoEvents(await history());
    expect(past.map(({ eventType }) => eventType)).toEqual([
      ...['asgard.message.user', 'asgard.message.complete', 'asgard.message.feedback', 'asgard.run.done'],
    ]);
    expect(past[0]?.fact.messageUser).toMatchObject({ text: 'What is this?', blobIds: [blobId] });
    const metadata = await ask('GET channel/metadata?custom_channel_id=c1');
    expect(JSON.parse(metadata.body)).toMatchObject({
      data: { customChannelId: 'c1', title: 'What is this?' },
    });
    const reset = send('', { action: 'RESET_CHANNEL', customMessageId: 'reset' });
    const greeting = [expect.stringMatching(/^Assistant\n- What can you help me with\?/)];
    expect(said(await streamOf(reset))).toEqual(greeting);
    expect(said(await history())).toEqual(greeting);
    expect(questions).toHaveLength(1);
  });
});

describe('a channel of our client, in front of a bot with a model', () => {
  /** A channel in a page of its own. */
  async function channel(options: ChannelOptions = {}): Promise<Channel> {
    const client = createBotClient({ baseUrl: relay.url, ...BOT, expert: { cookies: 'keep' } });
    await client.signIn(USER.name, USER.password);
    const opened = createChannel(client, { id: 'c1', ...options });
    leaves.push(opened.subscribe(() => {}));
    await isLoaded(opened);
    return opened;
  }
  const partOf = (message: ChannelMessage | undefined, type: string) =>
    message?.parts.find((part) => part.type === type);

  test('streams, in a second tab, too; stops, asks again, and shows the same after a reload', async () => {
    const page = await channel();
    const sent = page.send('Hello');
    (await question(1)).say('Good ');
    await until(() => allOf(page).at(-1) === 'bot: Good  (streaming)');
    const secondTab = await channel();
    await until(() => allOf(secondTab).at(-1) === 'bot: Good  (streaming)');
    (await question(1)).say('morning.');
    (await question(1)).done();
    expect((await sent)?.state).toBe('done');
    await isReady(secondTab);
    expect(allOf(secondTab)).toEqual(['user: Hello', 'bot: Good morning.']);

    const story = page.send('A story');
    (await question(2)).say('Once');
    await until(() => allOf(page).at(-1) === 'bot: Once (streaming)');
    await page.stop();
    expect((await story)?.state).toBe('stopped');
    await until((await question(2)).isLeft);
    const again = page.regenerate();
    (await question(3)).say('A fox.');
    (await question(3)).done();
    expect((await again)?.state).toBe('done');
    const shown = [
      ...['user: Hello', 'bot: Good morning.', 'user: A story', 'bot: Once (stopped)'],
      ...['user: A story', 'bot: A fox.'],
    ];
    await isReady(page);
    expect(allOf(page)).toEqual(shown);
    const reloaded = await channel();
    await until(() => allOf(reloaded).join() === shown.join());
  });

  test('shows a tool call, sends a file, rates an answer, and resets', async () => {
    const page = await channel();
    const file = await page.upload(new File([Buffer.from(PNG, 'base64')], 'dot.png', { type: 'image/png' }));
    const sent = page.send({ text: 'When was it made?', ...(file && { files: [file] }) });
    (await question(1)).callClock();
    (await question(2)).say('Now.');
    (await question(2)).done();
    const answer = await sent;
    expect(partOf(answer, 'dynamic-tool')).toMatchObject({
      ...{ toolName: 'clock', state: 'output-available', input: { zone: 'UTC' } },
      output: { time: expect.any(String), utc: expect.any(String) },
    });
    expect(await page.feedback(`${answer?.id}`, 'GOOD')).toBe(true);
    const reloaded = await channel();
    const shown = () => reloaded.getSnapshot().messages;
    await until(() => shown().length === 2);
    expect(allOf(reloaded)).toEqual(allOf(page));
    expect(partOf(shown()[0], 'file')).toMatchObject({ blobId: file?.blobId });
    expect(await page.reset()).toBe(true);
    expect(allOf(await channel())).toEqual([]);
  });
});
