import type { Socket } from 'node:net';
import { afterAll, expect } from '@jest/globals';
import { EventSource } from 'eventsource';
import { createParser } from 'eventsource-parser';
import { fieldClient } from '../harness/clients/field-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const HEARTBEAT_MS = 100;
const event = (n: number) => `data: ${JSON.stringify({ eventType: 'asgard.message.delta', n })}\n\n`;

const opened: RelayAndUpstream[] = [];
afterAll(() => Promise.all(opened.map((pair) => pair.close())));

async function start(onRequest: (socket: Socket) => void, environment: Record<string, string> = {}) {
  const pair = await startRelayAndUpstream(onRequest, environment);
  opened.push(pair);
  return { ...pair, client: { url: pair.relay.url, cookie: pair.cookie } };
}

/** Sends two events with silence around them, then the end. */
function withSilence(socket: Socket): void {
  const pieces = [event(1), event(2), ''];
  socket.write(STREAM_HEAD);
  const timer = setInterval(() => {
    const piece = pieces.shift();
    if (!piece) clearInterval(timer);
    socket.write(piece ? chunk(piece) : LAST_CHUNK);
  }, 2.5 * HEARTBEAT_MS);
}

type Case = [title: string, run: () => Promise<void>];
const RETRIES = ['always', 'unless-4xx', 'after-an-id'] as const;
const silent = () => start(withSilence, { HEARTBEAT_MS: String(HEARTBEAT_MS) });
const withoutMessages = 'a stream with heartbeats gives no extra message';

const SILENT: Case[] = [
  ...RETRIES.map(
    (retries): Case => [
      `${withoutMessages} to fetch-event-source, retries: ${retries}`,
      async () => {
        const { client, upstream } = await silent();
        const { data, error } = await fieldClient({ ...client, retries });
        expect(error).toBeUndefined();
        expect(data.map(({ n }) => n)).toEqual([1, 2]);
        expect(upstream.requests).toHaveLength(1);
      },
    ],
  ),
  [
    `${withoutMessages} to eventsource-parser, which sees them as comments`,
    async () => {
      const { relay, cookie } = await silent();
      const data: string[] = [];
      const comments: string[] = [];
      const parser = createParser({
        onEvent: (message) => data.push(message.data),
        onComment: (comment) => comments.push(comment),
      });
      parser.feed(await (await relay.send(cookie)).text());
      expect(data.map((each) => `data: ${each}\n\n`)).toEqual([event(1), event(2)]);
      expect(comments.length).toBeGreaterThan(0);
    },
  ],
  [
    `${withoutMessages} to eventsource`,
    async () => {
      const { relay, cookie } = await silent();
      const source = new EventSource(relay.url + BOT_PATH, {
        fetch: (_url, init) =>
          relay.send(cookie, { body: MESSAGE, headers: init.headers, signal: init.signal }),
      });
      const data: string[] = [];
      source.addEventListener('message', (message) => data.push(String(message.data)));
      await new Promise((resolve) => source.addEventListener('error', resolve));
      source.close();
      expect(data.map((each) => `data: ${each}\n\n`)).toEqual([event(1), event(2)]);
    },
  ],
];

type Break = (socket: Socket) => void;
const BREAKS: [string, Break][] = [
  // Does not end, so that the deadline ends it; the event has to be through before, on a busy machine too.
  ['the deadline', (socket) => void socket.write(`${STREAM_HEAD}${chunk(event(1))}`)],
  ['a FIN in the middle of a chunk', (socket) => void socket.end(`${STREAM_HEAD}fff\r\n${event(1)}`)],
  ['a bad chunk size', (socket) => void socket.write(`${STREAM_HEAD}${chunk(event(1))}no-size\r\n`)],
  [
    'a reset',
    (socket) => {
      socket.write(`${STREAM_HEAD}${chunk(event(1))}`);
      // However busy the process is, it reads the event between the timer and this.
      setTimeout(() => setImmediate(() => socket.resetAndDestroy()), 100);
    },
  ],
];

async function expectOneErrorEvent(name: string, breakOff: Break, retries: (typeof RETRIES)[number]) {
  const { client, upstream } = await start(
    breakOff,
    name === 'the deadline' ? { MAX_EXECUTION_MS: '3000' } : {},
  );
  const { data, messages, error } = await fieldClient({ ...client, retries });
  expect(error).toBeUndefined();
  expect(data.map(({ eventType }) => eventType)).toEqual(['asgard.message.delta', 'asgard.run.error']);
  expect(messages.at(-1)?.event).toBe('error');
  expect(upstream.requests).toHaveLength(1);
}

async function oldClientSendsAgain(): Promise<void> {
  const tooLarge = `data: {"half":"${'x'.repeat(70_000)}`;
  const { client, upstream } = await start((socket) => void socket.end(`${STREAM_HEAD}fffff\r\n${tooLarge}`));
  const { error } = await fieldClient({ ...client, retries: 'always' });
  expect(error).toMatchObject({ message: expect.stringMatching(/./) });
  expect(upstream.requests).toHaveLength(4);
}

const BROKEN = BREAKS.flatMap(([name, breakOff]) =>
  RETRIES.map(
    (retries): Case => [
      `a client in the field that meets ${name} gets one error event and sends nothing again, retries: ${retries}`,
      () => expectOneErrorEvent(name, breakOff, retries),
    ],
  ),
);
const OLD: Case = [
  'an old client sends a message four times if its stream is cut, so that the tests above would see retries',
  oldClientSendsAgain,
];

testSideBySide([...BROKEN, ...SILENT, OLD], 6);
