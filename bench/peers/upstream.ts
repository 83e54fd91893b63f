/**
 * A very cheap bot service as a process: HTTP/1.1 with keep-alive over plain TCP, 401 without the key. Prints
 * `{"port":…}` and runs until it is told to stop. Every event has its number and when it was sent (`timed-event.ts`).
 */
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { API_KEY } from '../support/message.ts';
import { monotonicMs, restOfEvent, startOfEvent } from '../support/timed-event.ts';

const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
const UNAUTHORIZED = 'HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n';
const LAST_CHUNK = '0\r\n\r\n';
const BOT = /\/bot-provider\/([^/?]+)\/message\/sse/;
const STREAM = /^(?:drip|flood)-(\d+)-(\d+)(?:-(\d+))?$/;
const SMALL_BYTES = 100;
const SMALL_REST = restOfEvent(SMALL_BYTES);
const KEY_LINE = new RegExp(`\r\nx-api-key: *${API_KEY}\r\n`, 'i');

/** The times of messages by bot, monotonic, in ms: the answer to `GET /arrivals`. */
const arrivals: Record<string, number[]> = {};
/** For each bot of silent streams, how many are open, and when the last one closed: the answer to `GET /open`. */
const silent: Record<string, { open: number; lastClosedAt: string }> = {};

const server = createServer({ noDelay: true }, (socket) => {
  let received = '';
  socket.setEncoding('latin1');
  socket.on('error', () => {});
  socket.on('data', (data: string) => {
    received += data;
    for (let length = lengthOfFirst(received); length > 0; length = lengthOfFirst(received)) {
      answer(socket, received.slice(0, received.indexOf('\r\n\r\n') + 2));
      received = received.slice(length);
    }
  });
});
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`);
});

/** The length of the first request if all of it is there, else 0. */
function lengthOfFirst(received: string): number {
  const headEnd = received.indexOf('\r\n\r\n');
  if (headEnd < 0) return 0;
  const head = received.slice(0, headEnd);
  if (/\r\ntransfer-encoding: *chunked/i.test(head)) {
    // The body is JSON without line ends.
    const last = received.indexOf(`\r\n${LAST_CHUNK}`, headEnd);
    return last < 0 ? 0 : last + 2 + LAST_CHUNK.length;
  }
  const contentLength = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0;
  const length = headEnd + 4 + Number(contentLength);
  return received.length < length ? 0 : length;
}

/** The bot's name says how: `drip-COUNT-BYTES-MS`, `flood-COUNT-BYTES`, `silent-NAME`, `paced-N`, or `three-N`. */
function answer(socket: Socket, head: string): void {
  const requestLine = head.slice(0, head.indexOf('\r\n'));
  const bot = BOT.exec(requestLine)?.[1];
  if (bot === undefined) {
    const what = requestLine.includes('/arrivals') ? arrivals : silent;
    socket.write(plain(JSON.stringify(what)));
    return;
  }
  if (!KEY_LINE.test(head)) {
    socket.write(UNAUTHORIZED);
    return;
  }
  const [stream, count, bytes, everyMs] = STREAM.exec(bot) ?? [];
  if (stream) {
    const shape = { count: Number(count), bytes: Number(bytes), everyMs: Number(everyMs) };
    if (everyMs) drip(socket, shape);
    else flood(socket, shape);
  } else if (bot.startsWith('silent-')) {
    // Nothing more comes.
    countUntilClosed(socket, bot);
    socket.write(STREAM_HEAD + smallEvent(0));
  } else {
    // All in one write.
    if (bot.startsWith('paced-')) noteArrival(bot);
    socket.write(STREAM_HEAD + smallEvent(0) + smallEvent(1) + smallEvent(2) + LAST_CHUNK);
  }
}

function noteArrival(bot: string): void {
  arrivals[bot] ??= [];
  arrivals[bot].push(monotonicMs());
}

function countUntilClosed(socket: Socket, bot: string): void {
  silent[bot] ??= { open: 0, lastClosedAt: '0' };
  const count = silent[bot];
  count.open++;
  socket.once('close', () => {
    count.open--;
    count.lastClosedAt = String(process.hrtime.bigint());
  });
}

interface Shape {
  readonly count: number;
  readonly bytes: number;
  readonly everyMs: number;
}

/** `count` events of `bytes` bytes, the first at once, and one every `everyMs` from then on. */
function drip(socket: Socket, { count, bytes, everyMs }: Shape): void {
  const rest = restOfEvent(bytes);
  let sent = 0;
  let ticking: NodeJS.Timeout;
  const stop = () => {
    clearTimeout(starting);
    clearInterval(ticking);
    // The connection may be kept for other streams.
    socket.off('close', stop);
  };
  const tick = () => {
    const event = chunk(startOfEvent(sent++) + rest);
    socket.write(sent === count ? event + LAST_CHUNK : event);
    if (sent === count) stop();
  };
  // Streams that open together must not send at the same times.
  const starting = setTimeout(() => {
    ticking = setInterval(tick, everyMs);
  }, Math.random() * everyMs);
  socket.once('close', stop);
  socket.write(STREAM_HEAD);
  tick();
}

/** `count` events of `bytes` bytes, as fast as they are taken. */
function flood(socket: Socket, { count, bytes }: Shape): void {
  const size = `${bytes.toString(16)}\r\n`;
  const rest = Buffer.from(`${restOfEvent(bytes)}\r\n`);
  let sent = 0;
  const go = () => {
    let hasRoom = true;
    while (hasRoom && sent < count && !socket.destroyed) {
      socket.cork();
      socket.write(size + startOfEvent(sent++), 'latin1');
      hasRoom = socket.write(rest);
      if (sent === count) socket.write(LAST_CHUNK);
      socket.uncork();
    }
    if (sent === count) socket.off('drain', go);
  };
  socket.write(STREAM_HEAD);
  socket.on('drain', go);
  go();
}

function smallEvent(n: number): string {
  return chunk(startOfEvent(n) + SMALL_REST);
}

function chunk(data: string): string {
  return `${data.length.toString(16)}\r\n${data}\r\n`;
}

function plain(body: string): string {
  return `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}
