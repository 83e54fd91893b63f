/**
 * A very cheap bot service as a process: HTTP/1.1 with keep-alive over plain TCP.
 * Without the key it answers 401. The bot's name says how it answers:
 *
 * - `three-N`: three events of 100 bytes and the end of the answer, all in one write;
 * - `silent-NAME`: headers and one event of 100 bytes at once, then nothing more;
 * - `drip-COUNT-BYTES-MS`: COUNT events of BYTES bytes, the first at once, one every MS from then on;
 * - `flood-COUNT-BYTES`: COUNT events of BYTES bytes, as fast as they are taken;
 * - `paced-N`: like `three-N`, and notes when each message arrived.
 *
 * Every event has its number and the time at which it was sent (`../support/timed-event.ts`).
 * `GET /arrivals` gives the times of messages by bot (monotonic, in ms). `GET /open` says for each bot of silent
 * streams how many are open, and when the last one closed. Prints `{"port":…}` and runs until it is told to stop.
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

const arrivals: Record<string, number[]> = {};
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
    countUntilClosed(socket, bot);
    socket.write(STREAM_HEAD + smallEvent(0));
  } else {
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
