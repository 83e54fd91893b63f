import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { EventSource } from 'eventsource';
import { createParser } from 'eventsource-parser';
import { startBotService } from '../../src/demo/bot-service.ts';
import { fieldClient } from '../support/field-client.ts';
import { type Pair, startPair } from '../support/pair.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay } from '../support/relay.ts';

const HEARTBEAT_MS = 100;
const event = (n: number) => `data: ${JSON.stringify({ eventType: 'asgard.message.delta', n })}\n\n`;

let pair: Pair;
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function start(onRequest: (socket: Socket) => void, environment: Record<string, string> = {}) {
  pair = await startPair(onRequest, environment);
  closers.push(() => pair.close());
}

/** Two events with several heartbeats around them, then the end. */
function withSilence(socket: Socket): void {
  const pieces = [event(1), event(2), ''];
  socket.write(STREAM_HEAD);
  const timer = setInterval(() => {
    const piece = pieces.shift();
    if (!piece) clearInterval(timer);
    socket.write(piece ? chunk(piece) : LAST_CHUNK);
  }, 2.5 * HEARTBEAT_MS);
}

const client = () => ({ url: pair.relay.url, cookie: pair.cookie });

describe('a stream with heartbeats brings no extra message', () => {
  const silent = () => start(withSilence, { HEARTBEAT_MS: String(HEARTBEAT_MS) });

  test.each(['always', 'behind-an-id'] as const)(
    'to fetch-event-source, retries: %s (S10, S18)',
    async (retries) => {
      await silent();
      const { data, error } = await fieldClient({ ...client(), retries });
      expect(error).toBeUndefined();
      expect(data.map(({ n }) => n)).toEqual([1, 2]);
      expect(pair.upstream.requests).toHaveLength(1);
    },
  );

  test('to eventsource-parser, which sees them as comments (S10)', async () => {
    await silent();
    const data: string[] = [];
    const comments: string[] = [];
    const parser = createParser({
      onEvent: (message) => data.push(message.data),
      onComment: (comment) => comments.push(comment),
    });
    parser.feed(await (await pair.relay.send(pair.cookie)).text());
    expect(data.map((each) => `data: ${each}\n\n`)).toEqual([event(1), event(2)]);
    expect(comments.length).toBeGreaterThan(0);
  });

  test('to eventsource (S10)', async () => {
    await silent();
    const source = new EventSource(pair.relay.url + BOT_PATH, {
      fetch: (_url, init) =>
        pair.relay.send(pair.cookie, { body: MESSAGE, headers: init.headers, signal: init.signal }),
    });
    const data: string[] = [];
    source.addEventListener('message', (message) => data.push(String(message.data)));
    await new Promise((resolve) => source.addEventListener('error', resolve));
    source.close();
    expect(data.map((each) => `data: ${each}\n\n`)).toEqual([event(1), event(2)]);
  });
});

type Break = (socket: Socket) => void;
const BREAKS: [string, Break][] = [
  ['a FIN in the middle of a chunk', (socket) => void socket.end(`${STREAM_HEAD}fff\r\n${event(1)}`)],
  ['a bad chunk size', (socket) => void socket.write(`${STREAM_HEAD}${chunk(event(1))}no-size\r\n`)],
  [
    'a reset',
    (socket) => {
      socket.write(`${STREAM_HEAD}${chunk(event(1))}`);
      setTimeout(() => socket.resetAndDestroy(), 100);
    },
  ],
  // Without an end: the deadline comes.
  ['the deadline', (socket) => void socket.write(`${STREAM_HEAD}${chunk(event(1))}`)],
];

describe.each(BREAKS)('a client in the field that meets %s', (name, breakOff) => {
  test.each(['always', 'behind-an-id'] as const)(
    'gets one error event and sends nothing again, retries: %s (S18)',
    async (retries) => {
      await start(breakOff, name === 'the deadline' ? { MAX_EXECUTION_MS: '500' } : {});
      const { data, messages, error } = await fieldClient({ ...client(), retries });
      expect(error).toBeUndefined();
      expect(data.map(({ eventType }) => eventType)).toEqual(['asgard.message.delta', 'asgard.run.error']);
      expect(messages.at(-1)?.event).toBe('error');
      expect(pair.upstream.requests).toHaveLength(1);
    },
  );
});

test('an old client sends a message four times if its stream is cut: the tests above see retries (S18)', async () => {
  await start((socket) => void socket.end(`${STREAM_HEAD}fff\r\ndata: {"half":`));
  const { error } = await fieldClient({ ...client(), retries: 'always' });
  expect(error).toMatchObject({ message: expect.stringMatching(/./) });
  expect(pair.upstream.requests).toHaveLength(4);
});

test('a new client resumes a stream that carried ids, and gets every event once (S18)', async () => {
  const service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 20 } });
  closers.push(service.close);
  const relay = await startRelay(service.url, { BOTS: 'demo/resume' });
  closers.unshift(relay.close);
  const sent: (string | null)[] = [];
  const { data, messages, error } = await fieldClient({
    url: relay.url,
    cookie: await relay.signIn(),
    path: '/generic/ns/demo/bot-provider/resume/message/sse',
    retries: 'behind-an-id',
    onSend: (headers) => sent.push(headers.get('last-event-id')),
  });
  expect(error).toBeUndefined();
  const numbers = messages.map(({ id }) => Number(id.split('.')[1]));
  expect(numbers).toEqual(numbers.map((_, index) => index + 1));
  expect(data.at(-1)?.eventType).toBe('asgard.run.done');
  expect(sent).toEqual([null, expect.stringMatching(/./)]);
  // It broke off in the middle, behind an event that the client had.
  expect(messages.slice(1, -2).map(({ id }) => id)).toContain(sent[1]);
});
