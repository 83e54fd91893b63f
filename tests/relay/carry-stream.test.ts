import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterAll, describe, expect, jest, test } from '@jest/globals';
import express, { type Response } from 'express';
import { Problem } from '../../src/errors.ts';
import type { CarriedStream } from '../../src/http/locals.ts';
import { carryStream } from '../../src/relay/message/carry-stream.ts';
import type { AnswerReader, UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { dechunk, type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { UNHEALED } from '../harness/relay/unhealed.ts';
import { askUpstream } from '../harness/service/ask-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const STALLED_MS = 1000;
const ENDED = new Problem('session_ended', 'Signed out.');
/** More than the buffers between the relay and a client hold. */
const MUCH_BYTES = 'data: a\n\n'.length << 20;
const MUCH = chunk(Buffer.alloc(MUCH_BYTES, 'data: a\n\n'.repeat(1024)));

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

/** Carries a stream to a client after `before` was called; only the head of the stream has arrived. */
async function carry(
  before: (ends: { upstream: UpstreamAnswer; stop: AbortController }) => void = () => {},
  stalledMs = 60_000,
): Promise<Carried> {
  const service = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
  const app = express();
  const carried = new Promise<Omit<Carried, 'client' | 'answer'>>((resolve) => {
    app.get('/', async (_req, res) => {
      const answer = await askUpstream(service.url);
      let reader = {} as AnswerReader;
      const upstream: UpstreamAnswer = {
        ...answer,
        read(next) {
          reader = next;
          answer.read(next);
        },
      };
      const stop = new AbortController();
      before({ upstream, stop });
      res.flushHeaders();
      let beat = () => {};
      const heartbeats = {
        watch: (_silence: unknown, call: () => void) => {
          beat = call;
        },
        unwatch: () => {},
      };
      const stream: CarriedStream = { bytes: 0 };
      const identity = { requestId: 'the-id', bot: { namespace: 'acme', botProviderName: 'helper' } };
      const ends = { answer: upstream, res, identity, stream, log: res.locals };
      const over = carryStream({ ...ends, signal: stop.signal, heartbeats, stalledMs, ...UNHEALED });
      const [socket] = service.sockets as [Socket];
      resolve({ service: socket, upstream, reader, res, stream, stop, beat: () => beat(), over });
    });
  });
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const client = rawClient(port, 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  opened.push({ service, server, client });
  return { ...(await carried), client, answer: () => dechunk(client.text()) };
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
    const { res, answer } = await carry(({ upstream }) => upstream.close());
    await until(() => answer().complete);
    expect(res.locals.outcome).toBe('upstream_stream_broken');
  });

  test('that was aborted before it is carried ends at once', async () => {
    const { res, service, answer } = await carry(({ stop }) => stop.abort(ENDED));
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
    const { service, res, answer } = await carry(undefined, STALLED_MS);
    const setTimeout = jest.spyOn(res, 'setTimeout');
    // The system always takes so little at once.
    if (untaken > 0) Object.defineProperty(res.socket, 'writableLength', { value: untaken });
    service.write(LAST_CHUNK);
    await until(() => answer().complete);
    expect(setTimeout.mock.calls).toEqual(timers);
  });

  test('may be silent for any time once its client has read everything', async () => {
    const { service, res, stream, over, client } = await carry();
    client.socket.pause();
    service.write(MUCH);
    await until(() => res.writableNeedDrain);
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
    const { service, res, stream, stop, client } = await carry();
    client.socket.pause();
    service.write(MUCH);
    await until(() => res.writableNeedDrain);
    stop.abort(ENDED);
    await until(() => service.destroyed);
    client.socket.resume();
    await client.closed;
    const received = client.reads.reduce((sum, { bytes }) => sum + bytes.length, 0);
    expect(received).toBeGreaterThan(stream.bytes);
  });

  test('that is aborted is logged with that reason, also if its client then reads nothing', async () => {
    const { service, res, stop, over, client } = await carry();
    client.socket.pause();
    service.write(MUCH);
    await until(() => res.writableNeedDrain);
    stop.abort(ENDED);
    res.emit('timeout');
    await over;
    expect(res.locals.outcome).toBe('session_ended');
  });
});
