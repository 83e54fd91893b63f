import { stat } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { afterAll, expect, test } from '@jest/globals';
import { bodyOf } from '../../src/relay/upstream/answer-body.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../support/raw-upstream.ts';
import { until } from '../support/relay-and-upstream.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

/** So large that its end is not taken before the answer is read. */
const EVENT = `data: ${'a'.repeat(8192)}\n\n`;
const BODY = Buffer.concat([chunk(EVENT), Buffer.from(LAST_CHUNK)]);
/** With this, the relay uses a connection for less than a second. */
const ONE_SECOND = 'Keep-Alive: timeout=2';
const FOUR_SECONDS = 'Keep-Alive: timeout=5';

const opened: { readonly service: RawUpstream; readonly upstream: Upstream }[] = [];
afterAll(async () => {
  for (const { service, upstream } of opened) {
    upstream.close();
    await service.close();
  }
});

interface Sending {
  readonly text?: string;
  readonly signal?: AbortSignal;
  readonly onDelayed?: () => Promise<void>;
}

/** A service, and the relay's connections to it. */
interface Connected {
  readonly service: RawUpstream;
  send(sending?: Sending): ReturnType<Upstream['send']>;
  sendAndRead(): Promise<void>;
  /** How many new connections the next message needs. */
  newConnections(): Promise<number>;
}

async function connectTo(onRequest: Parameters<typeof startRawUpstream>[0]): Promise<Connected> {
  const service = await startRawUpstream(onRequest);
  const upstream = createUpstream(new URL(service.url));
  opened.push({ service, upstream });
  const send = ({
    text = '{}',
    signal = new AbortController().signal,
    onDelayed = async () => {},
  }: Sending = {}) => {
    const body = Buffer.from(text);
    const request = { path: '/', headers: { 'content-length': String(body.length) }, body };
    return upstream.send(request, { signal, onDelayed, onSent: () => {} });
  };
  const sendAndRead = async () => {
    expect(String(Buffer.concat(await bodyOf(await send()).toArray()))).toBe(EVENT);
  };
  const newConnections = async () => {
    const before = service.sockets.length;
    await sendAndRead();
    return service.sockets.length - before;
  };
  return { service, send, sendAndRead, newConnections };
}

/** Starts a service that answers completely; `after` gets each socket after its answer. */
function start(header = '', after: (socket: Socket) => void = () => {}): Promise<Connected> {
  const head = STREAM_HEAD.replace('\r\n\r\n', `\r\n${header}${header && '\r\n'}\r\n`);
  return connectTo((socket) => {
    socket.write(Buffer.concat([Buffer.from(head), BODY]));
    after(socket);
  });
}

function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** Sends a message whose answer is not read for `ms`, though all of it has arrived. */
async function readAfter({ send }: Connected, ms: number): Promise<void> {
  const answer = await send();
  await new Promise<void>((resolve) => {
    answer.read({
      data() {
        answer.pause();
        setTimeout(answer.resume, ms);
      },
      end: resolve,
      broken: (cause) => expect(cause).toBe(''),
    });
  });
}

const CLOSINGS: [how: string, close: (socket: Socket) => void][] = [
  ['ends', (socket) => socket.end()],
  ['resets', (socket) => socket.resetAndDestroy()],
  ['answers 408 on', (socket) => socket.end('HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n')],
];

type Case = [title: string, run: () => Promise<void>];

const cases: Case[] = [
  [
    'an answer that was not read for a while leaves a connection that is as much older',
    async () => {
      const connected = await start(ONE_SECOND);
      const { newConnections } = connected;
      await readAfter(connected, 700);
      await sleep(500);
      expect(await newConnections()).toBe(1);
    },
  ],
  [
    'an answer that was not read for a while leaves a connection that may be too old at once, and does not hide younger ones',
    async () => {
      const connected = await start('Keep-Alive: timeout=3');
      const { service, sendAndRead, newConnections } = connected;
      const late = readAfter(connected, 2200);
      await sendAndRead();
      await sleep(1000);
      await sendAndRead();
      await late;
      expect(await newConnections()).toBe(0);
      expect(service.sockets).toHaveLength(2);
    },
  ],
  [
    'an answer that was not read for a while leaves a connection that can be used if it was read soon',
    async () => {
      const connected = await start(ONE_SECOND);
      const { newConnections } = connected;
      await readAfter(connected, 100);
      expect(await newConnections()).toBe(0);
    },
  ],
  ...CLOSINGS.map(
    ([how, close]): Case => [
      `if the service closes idle connections early and ${how} them, they are used for half of that time only`,
      async () => {
        let delay = 1600;
        const { service, sendAndRead, newConnections } = await start(
          '',
          (socket) => void setTimeout(close, delay, socket).unref(),
        );
        await sendAndRead();
        await until(() => service.sockets[0]?.destroyed === true);
        delay = 60_000;
        expect(await newConnections()).toBe(1);
        expect(await newConnections()).toBe(0);
        await sleep(1000);
        expect(await newConnections()).toBe(1);
        expect(service.requests).toHaveLength(4);
      },
    ],
  ),
  ...CLOSINGS.slice(0, 2).map(
    ([how, close]): Case => [
      `if the service closes idle connections early and ${how} one that a message takes at that moment, the message is sent on a new one`,
      async () => {
        const { service, send, sendAndRead, newConnections } = await start();
        await sendAndRead();
        await sleep(400);
        // Takes the connection; it is written to at the earliest in the next turn of the event loop.
        const answer = send();
        close(service.sockets[0] as Socket);
        block(50);
        await bodyOf(await answer).toArray();
        expect(service.sockets).toHaveLength(2);
        expect(service.requests).toHaveLength(2);
        await sleep(300);
        expect(await newConnections()).toBe(1);
      },
    ],
  ),
  [
    'if the service closes idle connections early and reads a message without answering it, they are used for half of that time',
    async () => {
      let answers = true;
      const { send, sendAndRead, newConnections } = await connectTo((socket) => {
        if (answers) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
        else socket.destroy();
      });
      await sendAndRead();
      await sleep(1200);
      answers = false;
      await expect(send()).rejects.toMatchObject({
        code: 'upstream_unreachable',
        options: { maybeStarted: true },
      });
      answers = true;
      expect(await newConnections()).toBe(1);
      expect(await newConnections()).toBe(0);
      await sleep(800);
      expect(await newConnections()).toBe(1);
    },
  ],
  [
    'if the service closes idle connections early and three later ones stay open as long as the relay keeps them, that is forgotten',
    async () => {
      let close = true;
      const { service, sendAndRead, newConnections } = await start(FOUR_SECONDS, (socket) => {
        if (close) setTimeout(() => socket.destroy(), 200);
      });
      await sendAndRead();
      const idleFrom = performance.now();
      await until(() => service.sockets[0]?.destroyed === true);
      const idleMs = performance.now() - idleFrom;
      close = false;
      // Each is too old when the next message comes, but stays open until its four seconds are over.
      for (let n = 0; n < 3; n++) {
        await sleep(0.75 * idleMs);
        expect(await newConnections()).toBe(1);
        expect(service.sockets.at(-2)?.destroyed).toBe(n === 0);
      }
      await until(() => service.sockets.every(({ destroyed }) => destroyed));
      await sendAndRead();
      await sleep(150);
      expect(await newConnections()).toBe(0);
    },
  ],
  [
    'if the service closes idle connections early a new connection is not too old, however long its message is delayed',
    async () => {
      let close = true;
      const { service, send, sendAndRead } = await start('', (socket) => {
        if (close) setTimeout(() => socket.destroy(), 50);
      });
      await sendAndRead();
      await until(() => service.sockets[0]?.destroyed === true);
      close = false;
      const answer = send({ onDelayed: () => sleep(200) });
      block(20);
      await bodyOf(await answer).toArray();
      expect(service.sockets).toHaveLength(2);
    },
  ],
  [
    'if the service closes idle connections early and the relay closes one, that says nothing about the others',
    async () => {
      let answers = true;
      const { service, send, sendAndRead, newConnections } = await connectTo((socket) => {
        if (answers) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
      });
      await sendAndRead();
      answers = false;
      const stop = new AbortController();
      const stopped = send({ signal: stop.signal });
      await service.nextRequest();
      stop.abort('stopped');
      await expect(stopped).rejects.toBe('stopped');
      answers = true;
      await sendAndRead();
      await sleep(150);
      expect(await newConnections()).toBe(0);
    },
  ],
  [
    'if the service closes idle connections early and closes a connection during an answer, that says nothing about idle ones',
    async () => {
      let whole = true;
      const { send, sendAndRead, newConnections } = await connectTo((socket) => {
        if (whole) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
        else socket.end(STREAM_HEAD);
      });
      await sendAndRead();
      whole = false;
      await expect(bodyOf(await send()).toArray()).rejects.toMatchObject({ code: 'ECONNRESET' });
      whole = true;
      await sendAndRead();
      await sleep(150);
      expect(await newConnections()).toBe(0);
    },
  ],
  [
    'at most 256 idle connections are kept: those that were used last',
    async () => {
      const socketOf = new Map<string, Socket>();
      const { send } = await connectTo((socket, { body }) => void socketOf.set(String(body), socket));
      const answers = Array.from({ length: 260 }, (_, n) => send({ text: String(n) }));
      await until(() => socketOf.size === 260);
      for (const [n, answer] of answers.entries()) {
        socketOf.get(String(n))?.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
        await bodyOf(await answer).toArray();
      }
      const closed = () => [...socketOf].filter(([, { destroyed }]) => destroyed).map(([n]) => Number(n));
      await until(() => closed().length >= 4);
      expect(closed().sort()).toEqual([0, 1, 2, 3]);
    },
  ],
];
testSideBySide(
  cases.map(([title, run]): Case => [title, whileAwake(run)]),
  6,
);

// These keep the process busy, so that they run after the others.
test('a message that a busy process writes too late does not go to a connection that has become too old', async () => {
  const { service, send, sendAndRead } = await start(ONE_SECOND);
  await sendAndRead();
  await sleep(600);
  let delayed = 0;
  // From here on, the event loop comes to the message before it comes to timers that are due.
  await stat('.');
  const answer = send({ onDelayed: async () => void delayed++ });
  block(600);
  await bodyOf(await answer).toArray();
  expect(delayed).toBe(1);
  expect(service.sockets).toHaveLength(2);
  expect(service.requests).toHaveLength(2);
});

test('a message on a young connection is written to it however long it took', async () => {
  const { service, send, sendAndRead } = await start(ONE_SECOND);
  await sendAndRead();
  const answer = send();
  block(600);
  await bodyOf(await answer).toArray();
  expect(service.sockets).toHaveLength(1);
});
