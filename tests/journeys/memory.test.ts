import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, expect } from '@jest/globals';
import { cheapHash } from '../support/cheap-hash.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from '../support/process.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../support/raw-upstream.ts';
import { BOT_PATH, MESSAGE, USER } from '../support/relay.ts';
import { residentBytes, testWithProc } from '../support/resident.ts';

const MB = 2 ** 20;
const EVENT_BYTES = 64 * 1024;
const EVENTS = (200 * MB) / EVENT_BYTES;
/** An upstream that may not write for this long, in ms, is held back and not merely waiting for its turn. */
const HELD_MS = 500;
const FLOOD = '{"flood":1}';
const PADDING = '.'.repeat(EVENT_BYTES);

let upstream: RawUpstream;
afterEach(async () => {
  await stopProcesses();
  await upstream.close();
});

/** What has been sent or received of a stream: how many bytes, and their checksum. */
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

/** An event of `EVENT_BYTES` that no other is like. */
function numberedEvent(number: number): Buffer {
  const event = Buffer.from(`data: ${number} ${PADDING}`).subarray(0, EVENT_BYTES);
  event.write('\n\n', EVENT_BYTES - 2);
  return event;
}

/**
 * An upstream that answers a `FLOOD` with 200 MB as fast as they are taken, and everything else briefly.
 * `paused` resolves once nothing more is taken, or everything has been.
 */
async function startFlood() {
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
    for (let number = 0; number < EVENTS; number++) {
      const event = numberedEvent(number);
      sent.add(event);
      if (!socket.write(chunk(event))) await drain(socket);
    }
    socket.write(LAST_CHUNK);
    onPause();
  };
  upstream = await startRawUpstream((socket, { body }) => {
    socket.write(STREAM_HEAD);
    // It is cut short only where the test has failed already.
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

/** Sends a message; resolves with the answer, of which nothing is read yet but the headers. */
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

testWithProc(
  'a client that reads nothing costs no memory, and gets everything once it reads (S15)',
  async () => {
    const { sent, paused } = await startFlood();
    const { pid, send } = await startRelay();
    // What every message loads and compiles is no part of what one stream costs.
    for (let count = 0; count < 50; count++) await read(await send(MESSAGE));

    const before = residentBytes(pid);
    const response = await send(FLOOD);
    await paused;
    expect(residentBytes(pid) - before).toBeLessThan(32 * MB);
    expect(sent.bytes()).toBeLessThan(EVENTS * EVENT_BYTES);

    const received = await read(response);
    expect(received.bytes()).toBe(EVENTS * EVENT_BYTES);
    expect(received.digest()).toBe(sent.digest());
  },
  30_000,
);
