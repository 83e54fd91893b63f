/**
 * A bot service that costs next to nothing, as a process of its own: HTTP/1.1 with keep-alive over bare TCP.
 * The bot's name says how it answers:
 *
 * - `three`: three small events and the end of the answer, all in one write;
 * - `silent`: headers and one event at once, then nothing more;
 * - `drip-COUNT-BYTES-MS`: COUNT events of BYTES bytes, the first at once, one every MS from then on. Each
 *   carries the time at which it was sent (`at`, monotonic, in ns).
 * - `paced-N`: like `three`, and notes when each message arrived.
 *
 * `GET /arrivals` gives these times by bot (monotonic, in ms). `GET /open` says how many streams are open, and
 * when the last one closed. Prints `{"port":…}` and runs
 * until it is told to stop.
 */
import { type AddressInfo, createServer, type Socket } from 'node:net';

const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
const LAST_CHUNK = '0\r\n\r\n';
const THREE_EVENTS =
  STREAM_HEAD + ['start', 'delta', 'done'].map((kind) => chunk(event(kind))).join('') + LAST_CHUNK;
const BOT = /\/bot-provider\/([^/?]+)\/message\/sse/;
const DRIP = /^drip-(\d+)-(\d+)-(\d+)$/;

const arrivals: Record<string, number[]> = {};
let open = 0;
let lastClosedAt = process.hrtime.bigint();

const server = createServer({ noDelay: true }, (socket) => {
  let received = '';
  socket.setEncoding('latin1');
  socket.on('error', () => {});
  socket.on('data', (data: string) => {
    received += data;
    for (let length = lengthOfFirst(received); length > 0; length = lengthOfFirst(received)) {
      answer(socket, received.slice(0, received.indexOf('\r\n')));
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
  const contentLength = /\r\ncontent-length: *(\d+)/i.exec(received.slice(0, headEnd))?.[1] ?? 0;
  const length = headEnd + 4 + Number(contentLength);
  return received.length < length ? 0 : length;
}

function answer(socket: Socket, requestLine: string): void {
  const bot = BOT.exec(requestLine)?.[1] ?? '';
  const [isDrip, count, bytes, everyMs] = DRIP.exec(bot) ?? [];
  if (bot.startsWith('paced-')) noteArrival(bot);
  if (bot === 'three' || bot.startsWith('paced-')) socket.write(THREE_EVENTS);
  else if (bot === 'silent') startStream(socket).write(STREAM_HEAD + chunk(event('start')));
  else if (isDrip)
    drip(startStream(socket), Number(count), { bytes: Number(bytes), everyMs: Number(everyMs) });
  else if (requestLine.includes('/arrivals')) socket.write(plain(JSON.stringify(arrivals)));
  else socket.write(plain(JSON.stringify({ open, lastClosedAt: String(lastClosedAt) })));
}

function noteArrival(bot: string): void {
  arrivals[bot] ??= [];
  arrivals[bot].push(Number(process.hrtime.bigint()) / 1e6);
}

/** Counts `socket` as an open stream until it closes; streams are not expected to end by themselves. */
function startStream(socket: Socket): Socket {
  open++;
  return socket.once('close', () => {
    open--;
    lastClosedAt = process.hrtime.bigint();
  });
}

function drip(socket: Socket, count: number, { bytes, everyMs }: { bytes: number; everyMs: number }): void {
  let left = count;
  let ticking: NodeJS.Timeout;
  const tick = () => {
    socket.write(chunk(timedEvent(bytes)) + (left === 1 ? LAST_CHUNK : ''));
    if (--left === 0) clearInterval(ticking);
  };
  socket.write(STREAM_HEAD);
  tick();
  if (left === 0) return;
  // Streams that opened together must not tick together.
  const starting = setTimeout(() => {
    ticking = setInterval(tick, everyMs);
  }, Math.random() * everyMs);
  socket.once('close', () => {
    clearTimeout(starting);
    clearInterval(ticking);
  });
}

function event(kind: string): string {
  return `data: {"eventType":"bench.${kind}"}\n\n`;
}

function timedEvent(bytes: number): string {
  const start = `data: {"at":${process.hrtime.bigint()},"fill":"`;
  return `${start}${'x'.repeat(Math.max(0, bytes - start.length - 4))}"}\n\n`;
}

function chunk(data: string): string {
  return `${data.length.toString(16)}\r\n${data}\r\n`;
}

function plain(body: string): string {
  return `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}
