import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import express, { type Response } from 'express';
import { Problem } from '../../src/errors.ts';
import type { CarriedStream } from '../../src/http/locals.ts';
import { carryStream } from '../../src/relay/message/carry-stream.ts';
import type { AnswerReader, UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { askUpstream } from '../support/ask-upstream.ts';
import { until } from '../support/pair.ts';
import { dechunk, type RawClient, rawClient } from '../support/raw-client.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../support/raw-upstream.ts';

const STALLED_MS = 500;
const ENDED = new Problem('session_ended', 'Signed out.');
/** More than the buffers between the relay and a client hold. */
const MUCH = chunk(Buffer.alloc(8 << 20, 'data: a\n\n'.repeat(1024)));

let service: RawUpstream;
let server: Server;
let client: RawClient;
afterEach(async () => {
  client.socket.destroy();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await service.close();
});

interface Carried {
  /** The bot service's end of the stream. */
  readonly service: Socket;
  readonly upstream: UpstreamAnswer;
  /** What the stream takes its bytes with: to hand it something late. */
  readonly reader: AnswerReader;
  readonly res: Response;
  /** What was carried so far. */
  readonly stream: CarriedStream;
  readonly stop: AbortController;
  /** What a heartbeat's turn calls. */
  beat(): void;
  readonly over: Promise<void>;
}

/** A stream that is carried to `client`, once `before` has seen its two ends; nothing but its head has come. */
async function carry(
  before: (ends: { upstream: UpstreamAnswer; stop: AbortController }) => void = () => {},
  stalledMs = 60_000,
): Promise<Carried> {
  service = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
  const app = express();
  const carried = new Promise<Carried>((resolve) => {
    app.get('/', async (_req, res) => {
      const answer = await askUpstream(service.url);
      let reader = {} as AnswerReader;
      const upstream: UpstreamAnswer = {
        ...answer,
        read(by) {
          reader = by;
          answer.read(by);
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
      const of = { requestId: 'the-id', bot: { namespace: 'acme', botProviderName: 'helper' } };
      const ends = { upstream, res, of, stream, log: res.locals };
      const over = carryStream({ ...ends, signal: stop.signal, heartbeats, stalledMs });
      const [socket] = service.sockets as [Socket];
      resolve({ service: socket, upstream, reader, res, stream, stop, beat: () => beat(), over });
    });
  });
  server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  client = rawClient((server.address() as AddressInfo).port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n');
  return carried;
}

const answer = () => dechunk(client.text());

/** A stream whose bot service is done with it, while its client reads nothing yet. */
async function endedUnread(): Promise<Carried> {
  const carried = await carry();
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
    const { upstream, res } = await carry();
    upstream.close();
    await until(() => answer().complete);
    expect(res.locals.outcome).toBe('upstream_stream_broken');
    expect(answer().body).toMatch(/^event: error\ndata: .*"code":"upstream_stream_broken"/);
  });

  test('whose upstream was closed before it is carried is broken', async () => {
    const { res } = await carry(({ upstream }) => upstream.close());
    await until(() => answer().complete);
    expect(res.locals.outcome).toBe('upstream_stream_broken');
  });

  test('that was told to end before it is carried does so', async () => {
    const { res, service } = await carry(({ stop }) => stop.abort(ENDED));
    await until(() => answer().complete);
    expect(res.locals.outcome).toBe('session_ended');
    await until(() => service.destroyed);
  });

  test('that is told to end lets go of its upstream at once, and takes nothing more of it', async () => {
    const { reader, res, stream, service, stop, beat } = await carry();
    service.write(chunk('data: half'));
    await client.waitFor('data: half');
    stop.abort(ENDED);
    await until(() => service.destroyed);
    // What was read already may still be handed over.
    reader.data(Buffer.from(' more\n\n'));
    reader.end();
    beat();
    expect([res.writableEnded, stream.bytes]).toEqual([false, 'data: half'.length]);
    await client.closed;
    expect(answer()).toMatchObject({ body: 'data: half', complete: false });
  });

  test.each(['stop', 'end', 'beat'] as const)(
    'keeps its order where data and %s come at once',
    async (last) => {
      const { reader, stop, beat } = await carry();
      reader.data(Buffer.from('data: a\n\n'));
      if (last === 'stop') stop.abort(ENDED);
      else if (last === 'end') reader.end();
      else beat();
      await client.waitFor({ stop: 'session_ended', end: LAST_CHUNK, beat: ':\n' }[last]);
      const next = { stop: 'event: error\n', end: '', beat: ':\n' }[last];
      expect(answer().body.startsWith(`data: a\n\n${next}`)).toBe(true);
    },
  );

  test('that has ended well has done so, whatever comes while its client still reads', async () => {
    const { reader, res, stop, beat } = await endedUnread();
    const write = jest.spyOn(res, 'write');
    stop.abort(ENDED);
    reader.broken('closed');
    beat();
    expect(write).not.toHaveBeenCalled();
    expect(res.end).toHaveBeenCalledTimes(1);
    expect(res.locals.outcome).toBeUndefined();
  });

  test('may be silent for as long as it likes once its client has caught up', async () => {
    const { service, res, stream, over } = await carry(undefined, STALLED_MS);
    client.socket.pause();
    service.write(MUCH);
    await until(() => res.writableNeedDrain);
    client.socket.resume();
    await until(() => !res.writableNeedDrain && stream.bytes === 8 << 20);
    // However often it has waited for the client.
    expect(res.listenerCount('timeout')).toBe(1);
    // Twice as long as a stall needs at most.
    await new Promise((resolve) => setTimeout(resolve, STALLED_MS * 4));
    service.write(LAST_CHUNK);
    await until(() => client.socket.destroyed || answer().complete);
    expect(res.locals.outcome).toBeUndefined();
    client.socket.end();
    await over;
  });

  test('waits for a client that reads none of its end no longer than for one in its middle', async () => {
    const { service, res } = await carry(undefined, STALLED_MS);
    const setTimeout = jest.spyOn(res, 'setTimeout');
    service.write(LAST_CHUNK);
    await until(() => answer().complete);
    expect(setTimeout).toHaveBeenCalledWith(STALLED_MS);
  });

  test('that is cut first hands over all that was written, to a client that takes a while', async () => {
    const { service, res, stream, stop } = await carry();
    service.write(chunk('id: 1\n\n'));
    await client.waitFor('id: 1');
    client.socket.pause();
    service.write(MUCH);
    await until(() => res.writableNeedDrain);
    stop.abort(ENDED);
    // Much longer than the way to the client takes, and less than its last bytes may.
    await new Promise((resolve) => setTimeout(resolve, STALLED_MS));
    client.socket.resume();
    await client.closed;
    const received = client.reads.reduce((sum, { bytes }) => sum + bytes.length, 0);
    expect(received).toBeGreaterThan(stream.bytes);
  });

  test('that had to end is logged as that, also if its client then reads nothing', async () => {
    const { service, res, stop, over } = await carry(undefined, STALLED_MS * 2);
    client.socket.pause();
    service.write(MUCH);
    await until(() => res.writableNeedDrain);
    stop.abort(ENDED);
    await over;
    expect(res.locals.outcome).toBe('session_ended');
  });
});
