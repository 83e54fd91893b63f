import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { expect } from '@jest/globals';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../service/raw-upstream.ts';
import { cheapHash } from './cheap-hash.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from './process.ts';
import { BOT_PATH, MESSAGE, USER } from './relay.ts';
import { residentBytes } from './resident-memory.ts';

const MB = 2 ** 20;
const EVENT_BYTES = 64 * 1024;
/** An upstream that cannot write for this long, in ms, is held back by backpressure. */
const HELD_MS = 1_000;
const FLOOD = '{"flood":1}';
const PADDING = '.'.repeat(EVENT_BYTES);

let upstream: RawUpstream;
/** Stops all that was started; for `afterEach`. */
export async function stopFlood(): Promise<void> {
  await stopProcesses();
  await upstream.close();
}

/** How many bytes of a stream were sent or received, and their checksum. */
function tally() {
  const hash = createHash('sha1');
  let bytes = 0;
  return {
    add(data: Buffer): void {
      hash.update(data);
      bytes += data.length;
    },
    bytes: () => bytes,
    digest: () => hash.digest('hex'),
  };
}

/** A unique event of `EVENT_BYTES` bytes. */
function numberedEvent(number: number): Buffer {
  const event = Buffer.from(`data: ${number} ${PADDING}`).subarray(0, EVENT_BYTES);
  event.write('\n\n', EVENT_BYTES - 2);
  return event;
}

/**
 * An upstream that answers a `FLOOD` with so many events as fast as it can write, and everything else briefly.
 * `paused` resolves when nothing more can be written, or all was.
 */
async function startFlood(events: number) {
  const sent = tally();
  let onPause = () => {};
  const paused = new Promise<void>((resolve) => {
    onPause = resolve;
  });
  const drain = async (socket: Socket) => {
    const timer = setTimeout(onPause, HELD_MS);
    await once(socket, 'drain');
    clearTimeout(timer);
  };
  const flood = async (socket: Socket) => {
    for (let number = 0; number < events; number++) {
      const event = numberedEvent(number);
      sent.add(event);
      if (!socket.write(chunk(event))) await drain(socket);
    }
    socket.write(LAST_CHUNK);
    onPause();
  };
  upstream = await startRawUpstream((socket, { body }) => {
    socket.write(STREAM_HEAD);
    // It is cut only if the test has failed.
    if (String(body) === FLOOD) flood(socket).catch(() => {});
    else socket.write(Buffer.concat([chunk('data: a\n\n'), Buffer.from(LAST_CHUNK)]));
  });
  return { sent, paused };
}

async function startRelay() {
  const users = JSON.stringify({ users: [{ name: USER.name, hash: cheapHash(USER.password) }] });
  const relay = startProcess({
    folder: freshFolder({ 'users.json': users }),
    environment: {
      ...inFrontOf(upstream.url),
      RATE_LIMIT: '1000',
    },
  });
  const port = await relay.listening();
  const cookie = await signInAt(port, USER.name, USER.password);
  return { pid: relay.pid, send: (body: string) => send(port, cookie, body) };
}

/** Sends a message; resolves with the answer, whose body is not read yet. */
async function send(port: number, cookie: string, body: string): Promise<IncomingMessage> {
  const headers = { 'Content-Type': 'application/json', Cookie: cookie };
  const options = { port, host: '127.0.0.1', path: BOT_PATH, method: 'POST', headers, agent: false };
  const [response] = await once(request(options).end(body), 'response');
  expect((response as IncomingMessage).statusCode).toBe(200);
  return response as IncomingMessage;
}

async function read(response: IncomingMessage) {
  const received = tally();
  for await (const data of response) received.add(data as Buffer);
  return received;
}

/** A client asks for so many MB, which must be far more than the relay may keep, and reads nothing at first. */
export async function floodUnread(megabytes: number): Promise<void> {
  const events = (megabytes * MB) / EVENT_BYTES;
  const { sent, paused } = await startFlood(events);
  const { pid, send } = await startRelay();
  // Code that is loaded for the first messages must not count.
  for (let count = 0; count < 50; count++) await read(await send(MESSAGE));

  const before = residentBytes(pid);
  const response = await send(FLOOD);
  await paused;
  expect(residentBytes(pid) - before).toBeLessThan(32 * MB);
  expect(sent.bytes()).toBeLessThan(events * EVENT_BYTES);

  const received = await read(response);
  expect(received.bytes()).toBe(events * EVENT_BYTES);
  expect(received.digest()).toBe(sent.digest());
}
