import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import express, { type Response } from 'express';
import fc from 'fast-check';
import { Problem } from '../../src/errors.ts';
import type { CarriedStream } from '../../src/http/locals.ts';
import { carryStream } from '../../src/relay/message/carry-stream.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { responseSink } from '../../src/relay/message/response-sink.ts';
import { streamWriter } from '../../src/relay/message/stream-writer.ts';
import type { AnswerReader } from '../../src/relay/upstream/answer-arrival.ts';
import { createUpstream } from '../../src/relay/upstream/send.ts';
import { dechunk, type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { inPieces, splits, streams } from '../harness/service/event-streams.ts';
import {
  CLOSE_DELIMITED_HEAD,
  chunk,
  LAST_CHUNK,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const closings: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closings.splice(0).reverse()) await close();
});
afterEach(() => void jest.restoreAllMocks());

describe('a stream passes', () => {
  /** Bytes that would change if a relay decoded, split or trimmed them. */
  const NASTY = Buffer.from(
    [
      '\ufeff: a comment\n:\n\n',
      'id: 7\nretry: 10\nevent: message\ndata: 😀 👩‍👩‍👧 é\ndata:\ndata\n\n',
      'data: crlf\r\n\r\ndata: bare cr\r\rdata: \ufeff \0 trailing  \n\n',
      ':\r\nunknown: field\nID: 8\n\n\n\n',
    ].join(''),
  );
  const LARGE = Buffer.from(`data: ${'😀\u2028x'.repeat(128 * 1024)}\n\n`);
  /** The channel on which Node.js reports every request to a server. */
  const REQUESTS = 'http.server.request.start';

  let pair: RelayAndUpstream;
  /** What the service does with the next message. */
  let serve: (socket: Socket) => unknown;
  let messages = 0;
  beforeAll(async () => {
    pair = await startRelayAndUpstream((socket) => void serve(socket), { RATE_LIMIT: '100000' });
    closings.push(pair.close);
  });
  /** Each is a message of its own: the same bytes would join its run. */
  const ask = (headers: string[] = []) => pair.ask({ body: JSON.stringify({ n: ++messages }), headers });
  const newest = () => pair.upstream.sockets.at(-1) as Socket;
  /** A stream of which the head and one event have come. */
  async function begun(): Promise<{ client: RawClient; socket: Socket }> {
    serve = (socket) => socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: a\n\n')]));
    const client = ask(['Connection: close']);
    await client.waitFor('data: a\n\n');
    return { client, socket: newest() };
  }

  test('byte for byte, whatever it is and however it is split', async () => {
    await fc.assert(
      fc.asyncProperty(streams, splits, async (stream, lengths) => {
        const pieces = inPieces(stream, lengths).filter(({ length }) => length > 0);
        serve = (socket) => {
          for (const bytes of [STREAM_HEAD, ...pieces.map(chunk), LAST_CHUNK]) socket.write(bytes);
        };
        const client = ask(['Connection: close']);
        await client.closed;
        const { body, complete } = dechunk(client.text());
        expect([complete, Buffer.from(body, 'latin1').equals(stream)]).toEqual([true, true]);
      }),
      {
        numRuns: 100,
        examples: [
          [NASTY, [1]],
          [Buffer.concat([LARGE, NASTY]), [1 << 20]],
        ],
      },
    );
  });

  test('event by event, each before the next is sent, and its headers before the first', async () => {
    serve = (socket) => socket.write(STREAM_HEAD);
    const client = ask();
    await client.waitFor('\r\n\r\n');
    expect(client.text()).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\nContent-Type: text\/event-stream\r\n/i);
    const events = [1, 2, 3].map((n) => `data: event ${n}\n\n`);
    for (const event of events) {
      newest().write(chunk(event));
      await client.waitFor(event);
    }
    newest().write(LAST_CHUNK);
    await client.waitFor(LAST_CHUNK);
    expect(dechunk(client.text())).toMatchObject({ body: events.join(''), complete: true });
  });

  test('with its headers in one write, if both have arrived together', async () => {
    const toSystem = jest.fn();
    const watch = (message: unknown) => {
      const { socket } = message as { socket: Socket };
      // Every write of a socket to the system goes through one of these methods.
      const { _write, _writev } = socket;
      socket._write = (...args) => toSystem() ?? _write.apply(socket, args);
      socket._writev = (...args) => toSystem() ?? _writev?.apply(socket, args);
    };
    subscribe(REQUESTS, watch);
    await begun();
    unsubscribe(REQUESTS, watch);
    expect(toSystem).toHaveBeenCalledTimes(1);
  });

  test('and ends when its upstream ends, without a call of the session store', async () => {
    const { client, socket } = await begun();
    const { sessions } = pair.relay.parts;
    const stalled = (['get', 'set', 'extend', 'state', 'remove'] as const).map((name) =>
      jest.spyOn(sessions, name).mockReturnValue(new Promise<never>(() => {})),
    );
    socket.write(Buffer.concat([chunk('data: b\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: 'data: a\n\ndata: b\n\n', complete: true });
    for (const operation of stalled) expect(operation).not.toHaveBeenCalled();
  });

  test('and keeps nothing of the body of its message', async () => {
    let res: Response | undefined;
    const onRequest = (message: unknown) => {
      res = (message as { response: Response }).response;
    };
    subscribe(REQUESTS, onRequest);
    await begun();
    unsubscribe(REQUESTS, onRequest);
    expect(res?.locals.bot).toBe('acme/helper');
    const held = [res, res?.req, res?.locals].flatMap((holder) => Object.values(holder ?? {}));
    expect(held.filter((value) => Buffer.isBuffer(value))).toEqual([]);
  });

  test('beside 300 others, none of which waits for a socket', async () => {
    serve = (socket) => socket.write(STREAM_HEAD);
    const { upstream, relay } = pair;
    const before = upstream.requests.length;
    const clients: RawClient[] = [];
    while (clients.length < 300) {
      // Fewer at a time than the listen backlog.
      for (let n = 0; n < 100; n++) clients.push(ask());
      await until(() => upstream.requests.length === before + clients.length);
    }
    // Those that are kept from other tests are used again.
    const sockets = upstream.sockets.filter(({ destroyed }) => !destroyed);
    for (const socket of sockets) socket.write(chunk('data: a\n\n'));
    await Promise.all(clients.map((client) => client.waitFor('data: a\n\n')));
    for (const socket of sockets) socket.write(LAST_CHUNK);
    await Promise.all(clients.map((client) => client.waitFor(LAST_CHUNK)));
    await relay.untilOpen(0);
  });
});

const IDENTITY = { requestId: 'r', bot: { namespace: 'acme', botProviderName: 'helper' } };
const NO_BEATS = { watch() {}, unwatch() {} };

/** Sends a request to a server in this process, and resolves with its client and its response. */
async function respond(version = '1.1', handle = (res: ServerResponse) => res.flushHeaders()) {
  const opened = Promise.withResolvers<Response>();
  const app = express();
  app.get('/', (_req, res) => {
    handle(res);
    opened.resolve(res);
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = rawClient(port, `GET / HTTP/${version}\r\nHost: a\r\nConnection: close\r\n\r\n`);
  closings.push(() => {
    client.socket.destroy();
    server.close();
    server.closeAllConnections();
  });
  return { server, client, res: await opened.promise };
}

describe('the writer of a stream', () => {
  /** Opens a response whose headers are sent, and records all later writes to its socket. */
  async function open() {
    const { server, client, res } = await respond();
    await client.waitFor('\r\n\r\n');
    const writes = jest.spyOn(res.socket as Socket, 'write');
    const onFull = jest.fn();
    return { server, client, res, writes, onFull, writer: streamWriter(res, onFull) };
  }
  /** What a writer is given: bytes, or a moment at which it flushes, or lets the others work. */
  const steps = fc.array(
    fc.oneof(
      { arbitrary: fc.nat({ max: 40 }), weight: 6 },
      { arbitrary: fc.constantFrom(4000, 4090, 4096, 70_000), weight: 1 },
      { arbitrary: fc.constantFrom('flush', 'turn', 'direct'), weight: 4 },
    ),
    { maxLength: 30, size: 'max' },
  );

  test('writes all bytes in their order, however they come, are flushed and mixed with those of the response', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (all) => {
        const { res, writer, client } = await open();
        let expected = '';
        for (const [n, step] of all.entries()) {
          if (typeof step === 'number') {
            const text = String.fromCharCode(97 + (n % 26)).repeat(step);
            expected += text;
            writer.write(Buffer.from(text));
          } else if (step === 'turn') await new Promise(setImmediate);
          else {
            writer.flush();
            if (step === 'direct') res.write('direct');
            if (step === 'direct') expected += 'direct';
          }
        }
        writer.flush();
        res.end();
        await client.closed;
        expect(dechunk(client.text())).toMatchObject({ body: expected, complete: true });
      }),
      {
        numRuns: 60,
        examples: [[[0, 'flush', 5, 'flush', 'direct']], [[6, 4096, 6, 70_000, 'turn', 4090, 4000]]],
      },
    );
  });

  test('sends chunks that arrive together in one write, each with its framing, and large ones without a copy', async () => {
    const { res, client, writer, writes, onFull } = await open();
    writer.write(Buffer.from('data: a\n\n'));
    writer.write(Buffer.from('data: some more than that\n\n'));
    await client.waitFor('9\r\ndata: a\n\n\r\n1b\r\ndata: some more than that\n\n\r\n');
    expect(writes).toHaveBeenCalledTimes(1);
    const large = Buffer.alloc(5_000);
    const toResponse = jest.spyOn(res, 'write');
    writer.write(large);
    writer.flush();
    expect(toResponse.mock.calls.map(([bytes]) => bytes === large)).toEqual([true]);
    expect(onFull).not.toHaveBeenCalled();
  });

  test.each([
    ['has left', (res: ServerResponse) => res.destroy()],
    ['has closed its side', (res: ServerResponse) => res.socket?.end()],
  ])('writes nothing for a client that %s, and causes no clientError', async (_what, leave) => {
    const { server, res, writer, writes, onFull } = await open();
    const failed = jest.fn();
    server.on('clientError', failed);
    leave(res);
    writer.write(Buffer.from('data: a\n\n'));
    await new Promise(setImmediate);
    expect(writes.mock.calls.length + onFull.mock.calls.length + failed.mock.calls.length).toBe(0);
  });
});

test('a stream to a response that has closed already is told so at once, gets no heartbeats, and leaves no timer', async () => {
  const { res } = await respond('1.1', (one) => one.destroy());
  if (!res.closed) await once(res, 'close');
  let [watched, closed] = [0, 0];
  const heartbeats = { watch: () => watched++, unwatch: () => watched-- };
  const sink = responseSink({ res, stream: { bytes: 0 }, log: {}, heartbeats, identity: IDENTITY });
  sink.open({ full() {}, drained() {}, mayBeat: () => true, closed: () => closed++ });
  expect([closed, watched]).toEqual([1, 0]);
  const timers = jest.spyOn(globalThis, 'setTimeout');
  sink.endEarly(new Problem('stopped', 'Stopped.'), false);
  expect(timers).not.toHaveBeenCalled();
});

const STALLED_MS = 1000;
const ENDED = new Problem('session_ended', 'Signed out.');
/** More than the buffers between the relay and a client hold. */
const MUCH_BYTES = 'data: a\n\n'.length << 20;
const MUCH = Buffer.alloc(MUCH_BYTES, 'data: a\n\n');

interface Carrying {
  readonly stalledMs?: number;
  readonly version?: string;
  /** What the service sends, and ends with its connection; without it, only the head of a stream has arrived. */
  readonly bytes?: Buffer;
  /** Whether the client reads nothing yet. */
  readonly isPaused?: boolean;
  readonly isAborted?: boolean;
}

/** Carries a stream to a client. */
async function carry({
  stalledMs = 60_000,
  version,
  bytes,
  isPaused = false,
  isAborted = false,
}: Carrying = {}) {
  const service = await startRawUpstream((socket) => {
    if (bytes) socket.end(Buffer.concat([Buffer.from(CLOSE_DELIMITED_HEAD), bytes]));
    else socket.write(STREAM_HEAD);
  });
  closings.push(service.close);
  const { client, res } = await respond(version);
  if (isPaused) client.socket.pause();
  const stop = new AbortController();
  const sending = { signal: new AbortController().signal, onDelayed: async () => {}, onSent() {} };
  const request = { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') };
  const answer = await createUpstream(new URL(service.url)).send(request, sending);
  if (isAborted) stop.abort(ENDED);
  /** The reader of the answer. A test calls it after the end of the stream. */
  let reader = {} as AnswerReader;
  let beat = () => {};
  const stream: CarriedStream = { bytes: 0 };
  const over = carryStream({
    answer: {
      ...answer,
      read(next) {
        reader = next;
        answer.read(next);
      },
    },
    holding: { maxBytes: 65_536, held: heldBytes(1 << 20), onUnheld() {} },
    ...{ channel: undefined, lastEventId: undefined, healer: undefined, endEvents: true },
    onFault(error) {
      throw error;
    },
    ...{ res, identity: IDENTITY, stream, log: res.locals, signal: stop.signal, stalledMs },
    heartbeats: {
      ...NO_BEATS,
      watch(_silence, call) {
        beat = call;
      },
    },
  });
  const [socket] = service.sockets as [Socket];
  return { client, res, service: socket, reader, stream, stop, beat: () => beat(), over };
}
const bodyOf = (client: RawClient) => dechunk(client.text()).body;

describe('a stream that is carried', () => {
  test('ends at once if it was aborted before', async () => {
    const { client, res, service, over } = await carry({ isAborted: true });
    await over;
    expect(res.locals.outcome).toBe('session_ended');
    await until(() => service.destroyed && dechunk(client.text()).complete);
  });

  test('closes its upstream at once when it is aborted, and takes no more data from it', async () => {
    const { reader, res, stream, service, stop, beat, client, over } = await carry();
    service.write(chunk('data: whole\n\ndata: half'));
    await client.waitFor('data: whole\n\n');
    stop.abort(ENDED);
    await until(() => service.destroyed);
    // Data that was already read may still arrive.
    reader.data(Buffer.from(' more\n\n'));
    reader.end();
    beat();
    expect([res.locals.outcome, stream.bytes]).toEqual(['session_ended', 'data: whole\n\n'.length]);
    await over;
    await until(() => dechunk(client.text()).complete);
    expect(bodyOf(client)).toMatch(/^data: whole\n\nevent: error\ndata: [^\n]*"session_ended"[^\n]*\n\n$/);
  });

  test.each(['stop', 'end', 'beat'] as const)(
    'keeps its order if data and %s arrive at the same time',
    async (last) => {
      const { reader, stop, beat, client } = await carry();
      reader.data(Buffer.from('data: a\n\n'));
      if (last === 'stop') stop.abort(ENDED);
      else if (last === 'end') reader.end();
      else beat();
      await client.waitFor({ stop: 'session_ended', end: LAST_CHUNK, beat: ':\n' }[last]);
      const next = { stop: 'event: error\n', end: '', beat: ':\n' }[last];
      expect(bodyOf(client).startsWith(`data: a\n\n${next}`)).toBe(true);
    },
  );

  test('ignores all events when it has ended, while its client still reads; that is cut as for any other data', async () => {
    const { reader, res, stop, beat, service, client } = await carry({ stalledMs: STALLED_MS });
    // The system always takes so little at once.
    Object.defineProperty(res.socket, 'writableLength', { value: 1 });
    const end = jest.spyOn(res, 'end').mockReturnValueOnce(res);
    const setTimeout = jest.spyOn(res, 'setTimeout');
    service.write(LAST_CHUNK);
    await until(() => end.mock.calls.length > 0);
    const write = jest.spyOn(res, 'write');
    stop.abort(ENDED);
    reader.broken('closed');
    beat();
    expect([write.mock.calls.length, end.mock.calls.length]).toEqual([0, 1]);
    expect([res.locals.outcome, setTimeout.mock.calls]).toEqual([undefined, [[STALLED_MS]]]);
    client.socket.destroy();
  });

  /** A stream to a client that is full. */
  async function carryMuch() {
    const carried = await carry({ isPaused: true });
    carried.service.write(chunk(MUCH));
    await until(() => carried.res.writableNeedDrain);
    return carried;
  }

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

  test('sends all written data to a slow client, also if it is aborted', async () => {
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

describe('a client', () => {
  const FILE = Buffer.concat([MUCH, MUCH, MUCH]);
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
    ['that reads nothing is cut after a while, and the upstream is aborted', cutAfterAWhile],
    ['of HTTP/1.0 that reads nothing is reset, so that its stream does not look complete', resetForHttp10],
    ['that is slow but reads is not cut, and gets everything', readSlowly],
  ]);
});
