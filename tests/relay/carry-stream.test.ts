import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterAll, describe, expect, jest, test } from '@jest/globals';
import express, { type Response } from 'express';
import { Problem } from '../../src/errors.ts';
import type { CarriedStream } from '../../src/http/locals.ts';
import { carryStream } from '../../src/relay/message/carry-stream.ts';
import type { Healer } from '../../src/relay/message/healing.ts';
import type { AnswerReader, UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { createUpstream } from '../../src/relay/upstream/send.ts';
import { dechunk, type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { UNHEALED } from '../harness/relay/unhealed.ts';
import {
  CLOSE_DELIMITED_HEAD,
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

/** Sends a small message to the bot service at `url` as the relay does, and returns the answer. */
function askUpstream(url: string): Promise<UpstreamAnswer> {
  const body = Buffer.from('{}');
  return createUpstream(new URL(url)).send(
    { path: '/', headers: { 'content-length': String(body.length) }, body },
    { signal: new AbortController().signal, onDelayed: async () => {}, onSent: () => {} },
  );
}

const STALLED_MS = 1000;
const ENDED = new Problem('session_ended', 'Signed out.');
/** More than the buffers between the relay and a client hold. */
const MUCH_BYTES = 'data: a\n\n'.length << 20;
const MUCH = chunk(Buffer.alloc(MUCH_BYTES, 'data: a\n\n'));

const opened: { readonly service: RawUpstream; readonly server: Server; readonly client: RawClient }[] = [];
afterAll(async () => {
  for (const { service, server, client } of opened) {
    client.socket.destroy();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await service.close();
  }
});

interface Carried {
  readonly client: RawClient;
  /** What the client has received. */
  answer(): ReturnType<typeof dechunk>;
  /** The bot service's end of the stream. */
  readonly service: Socket;
  readonly upstream: UpstreamAnswer;
  /** The reader of the stream, to call it late. */
  readonly reader: AnswerReader;
  readonly res: Response;
  /** The carried bytes so far. */
  readonly stream: CarriedStream;
  readonly stop: AbortController;
  /** Triggers a heartbeat. */
  beat(): void;
  /** Whether the stream was complete. */
  readonly over: ReturnType<typeof carryStream>;
}

interface Carrying {
  /** Called before the stream is carried. */
  readonly before?: (ends: { upstream: UpstreamAnswer; stop: AbortController }) => void;
  readonly stalledMs?: number;
  readonly version?: string;
  /** What the service sends, and ends with its connection; without it, only the head of a stream has arrived. */
  readonly bytes?: Buffer;
  /** Carried in the place of the service's answer. */
  readonly given?: UpstreamAnswer;
  readonly resume?: Healer['resume'];
  /** Whether the client reads nothing yet. */
  readonly isPaused?: boolean;
}

/** Carries a stream to a client. */
async function carry(how: Carrying = {}): Promise<Carried> {
  const { before, stalledMs = 60_000, version = '1.1', bytes, given, resume, isPaused } = how;
  const service = await startRawUpstream((socket) => {
    if (bytes) socket.end(Buffer.concat([Buffer.from(CLOSE_DELIMITED_HEAD), bytes]));
    else socket.write(STREAM_HEAD);
  });
  const app = express();
  const carried = new Promise<Omit<Carried, 'client' | 'answer'>>((resolve) => {
    app.get('/', async (_req, res) => {
      const answer = given ?? (await askUpstream(service.url));
      let reader = {} as AnswerReader;
      const upstream: UpstreamAnswer = {
        ...answer,
        read(next) {
          reader = next;
          answer.read(next);
        },
      };
      const stop = new AbortController();
      before?.({ upstream, stop });
      res.flushHeaders();
      let beat = () => {};
      const watch = (_silence: unknown, call: () => void) => {
        beat = call;
      };
      const stream: CarriedStream = { bytes: 0 };
      const identity = { requestId: 'the-id', bot: { namespace: 'acme', botProviderName: 'helper' } };
      const healer: Healer | undefined = resume && {
        ...{ isForbidden: () => false, resume, firstEvent() {}, recordOutcome() {} },
      };
      const over = carryStream({
        ...UNHEALED,
        ...{ answer: upstream, res, identity, stream, log: res.locals, signal: stop.signal, stalledMs },
        ...{ heartbeats: { watch, unwatch() {} }, healer: healer && (() => healer) },
      });
      const [socket] = service.sockets as [Socket];
      resolve({ service: socket, upstream, reader, res, stream, stop, beat: () => beat(), over });
    });
  });
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const client = rawClient(port, `GET / HTTP/${version}\r\nHost: a\r\nConnection: close\r\n\r\n`);
  if (isPaused) client.socket.pause();
  opened.push({ service, server, client });
  return { ...(await carried), client, answer: () => dechunk(client.text()) };
}

/** A stream to a client that is full. */
async function carryMuch(): Promise<Carried> {
  const carried = await carry({ isPaused: true });
  carried.service.write(MUCH);
  await until(() => carried.res.writableNeedDrain);
  return carried;
}

/** A stream that the bot service has ended, while its client reads nothing yet. */
async function endedUnread(): Promise<Carried> {
  const carried = await carry();
  const { client } = carried;
  await client.waitFor('\r\n\r\n');
  client.socket.pause();
  // Small enough for one write, so that the stream ends before the client has read it.
  carried.service.write(Buffer.concat([chunk('data: a\n\n'), Buffer.from(LAST_CHUNK)]));
  const end = jest.spyOn(carried.res, 'end').mockReturnValueOnce(carried.res);
  await until(() => end.mock.calls.length > 0);
  return carried;
}

describe('a stream', () => {
  test('whose upstream is closed without an error is broken', async () => {
    const { upstream, res, answer } = await carry();
    upstream.close();
    await until(() => answer().complete);
    expect(res.locals.outcome).toBe('upstream_stream_broken');
    expect(answer().body).toMatch(/^event: error\ndata: .*"code":"upstream_stream_broken"/);
  });

  test('whose upstream was closed before it is carried is broken', async () => {
    const { res, answer } = await carry({ before: ({ upstream }) => upstream.close() });
    await until(() => answer().complete);
    expect(res.locals.outcome).toBe('upstream_stream_broken');
  });

  test('that was aborted before it is carried ends at once', async () => {
    const { res, service, answer } = await carry({ before: ({ stop }) => stop.abort(ENDED) });
    await until(() => answer().complete);
    expect(res.locals.outcome).toBe('session_ended');
    await until(() => service.destroyed);
  });

  test('that is aborted closes its upstream at once, and takes no more data from it', async () => {
    const { reader, res, stream, service, stop, beat, client, answer } = await carry();
    service.write(chunk('data: whole\n\ndata: half'));
    await client.waitFor('data: whole\n\n');
    stop.abort(ENDED);
    await until(() => service.destroyed);
    // Data that was already read may still arrive.
    reader.data(Buffer.from(' more\n\n'));
    reader.end();
    beat();
    expect([res.locals.outcome, stream.bytes]).toEqual(['session_ended', 'data: whole\n\n'.length]);
    await until(() => answer().complete);
    expect(answer().body).toMatch(/^data: whole\n\nevent: error\ndata: [^\n]*"session_ended"[^\n]*\n\n$/);
  });

  test.each(['stop', 'end', 'beat'] as const)(
    'keeps its order if data and %s arrive at the same time',
    async (last) => {
      const { reader, stop, beat, client, answer } = await carry();
      reader.data(Buffer.from('data: a\n\n'));
      if (last === 'stop') stop.abort(ENDED);
      else if (last === 'end') reader.end();
      else beat();
      await client.waitFor({ stop: 'session_ended', end: LAST_CHUNK, beat: ':\n' }[last]);
      const next = { stop: 'event: error\n', end: '', beat: ':\n' }[last];
      expect(answer().body.startsWith(`data: a\n\n${next}`)).toBe(true);
    },
  );

  test('that has ended completely ignores all events while its client still reads', async () => {
    const { reader, res, stop, beat } = await endedUnread();
    const write = jest.spyOn(res, 'write');
    stop.abort(ENDED);
    reader.broken('closed');
    beat();
    expect(write).not.toHaveBeenCalled();
    expect(res.end).toHaveBeenCalledTimes(1);
    expect(res.locals.outcome).toBeUndefined();
  });

  test.each([
    ['waits for a client that does not read its end as long as for any other data', 1, [[STALLED_MS]]],
    ['sets no timer for an end that the system has taken', 0, []],
  ])('%s', async (_title, untaken, timers) => {
    const { service, res, answer } = await carry({ stalledMs: STALLED_MS });
    const setTimeout = jest.spyOn(res, 'setTimeout');
    // The system always takes so little at once.
    if (untaken > 0) Object.defineProperty(res.socket, 'writableLength', { value: untaken });
    service.write(LAST_CHUNK);
    await until(() => answer().complete);
    expect(setTimeout.mock.calls).toEqual(timers);
  });

  test('may be silent for any time once its client has read everything', async () => {
    const { service, res, stream, over, client } = await carryMuch();
    expect(res.socket?.timeout).toBe(60_000);
    client.socket.resume();
    await until(() => !res.writableNeedDrain && stream.bytes === MUCH_BYTES);
    // There is one listener, even after several waits for the client, and nothing that calls it.
    expect([res.listenerCount('timeout'), res.socket?.timeout]).toEqual([1, 0]);
    service.write(LAST_CHUNK);
    expect(await over).toEqual({ isComplete: true, openRun: undefined });
    await client.closed;
    expect(client.text().endsWith(LAST_CHUNK)).toBe(true);
    expect(res.locals.outcome).toBeUndefined();
  });

  test('that is cut first sends all written data to a slow client', async () => {
    const { service, stream, stop, client } = await carryMuch();
    stop.abort(ENDED);
    await until(() => service.destroyed);
    client.socket.resume();
    await client.closed;
    const received = client.reads.reduce((sum, { bytes }) => sum + bytes.length, 0);
    expect(received).toBeGreaterThan(stream.bytes);
  });

  test('that is aborted is logged with that reason, also if its client then reads nothing', async () => {
    const { res, stop, over } = await carryMuch();
    stop.abort(ENDED);
    res.emit('timeout');
    await over;
    expect(res.locals.outcome).toBe('session_ended');
  });
});

const KEPT = 'id: 1\ndata: kept\n\n';
/** More than the buffers hold, and all of it before the id. */
const BEFORE = Buffer.concat([Buffer.alloc(MUCH_BYTES, 'data: a\n\n'), Buffer.from(KEPT)]);
const EVENT = Buffer.from('data: b\n\n');

/** An answer whose body comes for as long as it is read: each of `chunks` in a turn of the event loop, then its end. */
function answerOf(chunks: Iterable<Buffer>, end: (reader: AnswerReader) => void) {
  const state = { sent: 0, paused: true, isRead: false, closed: 0 };
  const rest = chunks[Symbol.iterator]();
  let reader: AnswerReader | undefined;
  const next = () => {
    if (state.paused) return;
    const { value, done } = rest.next();
    if (done) return reader && end(reader);
    state.sent++;
    reader?.data(value);
    setImmediate(next);
  };
  const resume = () => {
    if (!state.paused) return;
    state.paused = false;
    setImmediate(next);
  };
  const answer: UpstreamAnswer = {
    ...{ status: 200, headers: { 'transfer-encoding': 'chunked' }, hasError: () => false },
    close() {
      state.closed++;
    },
    read(given) {
      state.isRead = true;
      reader = given;
      resume();
    },
    pause() {
      state.paused = true;
    },
    resume,
  };
  return { answer, state };
}

test('a resumed stream is not read before the client has room, though nothing of it may go down yet', async () => {
  const first = answerOf([BEFORE], (reader) => reader.broken('ECONNRESET'));
  // The whole stream is on its way already when the client is full.
  first.answer.pause = () => {};
  // It repeats the event that went down, so that nothing of it is written that the client could hold back.
  const again = answerOf([Buffer.from(KEPT), ...Array<Buffer>(1_000).fill(EVENT)], (reader) => reader.end());
  let isResumed = false;
  const resume = async () => {
    isResumed = true;
    return again.answer;
  };
  const { res, client } = await carry({ given: first.answer, resume, isPaused: true });
  await until(() => isResumed);
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  expect([res.writableNeedDrain, again.state.sent]).toEqual([true, 0]);
  client.socket.resume();
  await client.closed;
  expect(client.text().split(String(EVENT))).toHaveLength(1 + 1_000);
});

test('an answer to a resumption that comes when the client has left is closed unread', async () => {
  const first = answerOf([Buffer.from(KEPT)], (reader) => reader.broken('ECONNRESET'));
  const late = answerOf([EVENT], (reader) => reader.end());
  let isResumed = false;
  const resume: Healer['resume'] = (_resumption, signal) => {
    isResumed = true;
    return new Promise((resolve) => signal.addEventListener('abort', () => resolve(late.answer)));
  };
  const { client } = await carry({ given: first.answer, resume, isPaused: true });
  await until(() => isResumed);
  client.socket.destroy();
  await until(() => late.state.closed > 0 || late.state.isRead);
  expect(late.state).toMatchObject({ closed: 1, isRead: false });
});

/** More than the buffers between the service and a client can hold. */
const FILE = Buffer.alloc(9 * (3 << 20), 'data: a\n\n');
const carryFile = (how: Carrying = {}) =>
  carry({ bytes: FILE, stalledMs: STALLED_MS, isPaused: true, ...how });

async function cutAfterAWhile(): Promise<void> {
  const { over, res, stream, service } = await carryFile();
  await over;
  expect(res.locals.outcome).toBe('client_stalled');
  await until(() => service.destroyed);
  expect(stream.bytes).toBeLessThan(FILE.length);
}

async function resetForHttp10(): Promise<void> {
  const { over, res, client } = await carryFile({ version: '1.0' });
  await over;
  expect(res.locals.outcome).toBe('client_stalled');
  client.socket.resume();
  expect(await client.closed).toEqual({ error: 'ECONNRESET' });
}

async function cutWhenAborted(): Promise<void> {
  const { over, res, stop } = await carryFile({ stalledMs: 60_000 });
  // Longer than it takes to fill the buffers of client and relay.
  await sleep(STALLED_MS / 2);
  stop.abort(new Problem('deadline_exceeded', 'Too long.'));
  await over;
  expect(res.locals.outcome).toBe('deadline_exceeded');
}

async function readSlowly(): Promise<void> {
  const { over, res, stream, client } = await carryFile();
  const startedAt = performance.now();
  let read = 0;
  let finished = false;
  client.socket.removeAllListeners('data');
  const timer = setInterval(() => client.socket.resume(), STALLED_MS / 10);
  client.socket.on('data', (data) => {
    read += data.length;
    finished ||= data.includes('\r\n0\r\n\r\n');
    // In total it takes several times STALLED_MS.
    if (read % (1 << 20) < data.length) client.socket.pause();
  });
  await over;
  await until(() => finished || client.socket.destroyed);
  clearInterval(timer);
  expect(performance.now() - startedAt).toBeGreaterThan(2 * STALLED_MS);
  expect([res.locals.outcome, stream.bytes]).toEqual([undefined, FILE.length]);
  expect(read).toBeGreaterThan(FILE.length);
}

testSideBySide([
  ['a client that reads nothing is cut after a while, and the upstream is aborted', cutAfterAWhile],
  [
    'an HTTP/1.0 client that reads nothing is reset, so that its stream does not look complete',
    resetForHttp10,
  ],
  ['a client that reads nothing is cut when its stream is aborted, without an error event', cutWhenAborted],
  ['a client that is slow but reads is not cut, and gets everything', readSlowly],
]);
