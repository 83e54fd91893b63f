import { once } from 'node:events';
import { createServer, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { Problem } from '../../src/errors.ts';
import { responseSink } from '../../src/relay/message/response-sink.ts';
import { streamWriter } from '../../src/relay/message/stream-writer.ts';
import { dechunk, type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';

let server: Server;
let client: RawClient | undefined;
afterEach(async () => {
  client?.socket.destroy();
  client = undefined;
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

async function listen(answer: (res: ServerResponse) => void): Promise<number> {
  server = createServer((_req, res) => answer(res));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

/** Opens a response whose headers are sent, and records all later writes to it and to its socket. */
async function open(version = '1.1') {
  const opened = Promise.withResolvers<ServerResponse>();
  const port = await listen((res) => {
    res.flushHeaders();
    opened.resolve(res);
  });
  const own = rawClient(port, `GET / HTTP/${version}\r\nHost: a\r\n\r\n`);
  client = own;
  const res = await opened.promise;
  await own.waitFor('\r\n\r\n');
  const onFull = jest.fn();
  const writes = jest.spyOn(res.socket as Socket, 'write');
  const body = () => own.text().split('\r\n\r\n').slice(1).join('\r\n\r\n');
  const whole = async () => {
    await until(() => dechunk(own.text()).complete);
    return dechunk(own.text()).body;
  };
  return { client: own, res, writes, onFull, body, whole, writer: streamWriter(res, onFull) };
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

test('all bytes arrive in their order, however they are written, flushed and mixed with those of the response', async () => {
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      if (client) {
        client.socket.destroy();
        server.close();
      }
      const { res, writer, whole } = await open();
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
      expect(await whole()).toBe(expected);
    }),
    {
      numRuns: 60,
      examples: [[[0, 'flush', 5, 'flush', 'direct']], [[6, 4096, 6, 70_000, 'turn', 4090, 4000]]],
    },
  );
});

test('chunks that arrive together are sent in one write, each with its framing, and large ones without a copy', async () => {
  const { res, client, writer, writes, onFull, body } = await open();
  writer.write(Buffer.from('data: a\n\n'));
  writer.write(Buffer.from('data: some more than that\n\n'));
  await client.waitFor('than that\n\n\r\n');
  expect(body()).toBe('9\r\ndata: a\n\n\r\n1b\r\ndata: some more than that\n\n\r\n');
  expect(writes).toHaveBeenCalledTimes(1);
  const large = Buffer.alloc(5_000);
  const toResponse = jest.spyOn(res, 'write');
  writer.write(large);
  writer.flush();
  expect(toResponse.mock.calls.map(([bytes]) => bytes === large)).toEqual([true]);
  expect(onFull).not.toHaveBeenCalled();
});

test('onFull is called when the client reads too slowly, and the response drains later', async () => {
  const { client, res, writer, onFull, whole } = await open();
  client.socket.pause();
  const event = Buffer.from(`data: ${'x'.repeat(1000)}\n\n`);
  let written = 0;
  while (onFull.mock.calls.length === 0) {
    writer.write(event);
    writer.flush();
    written++;
    await new Promise(setImmediate);
  }
  expect(res.writableNeedDrain).toBe(true);
  const drained = once(res, 'drain');
  client.socket.resume();
  await drained;
  expect(res.writableNeedDrain).toBe(false);
  res.end();
  expect(await whole()).toBe(String(event).repeat(written));
});

test('an HTTP/1.0 client gets no chunked framing', async () => {
  const { client, res, writer, body } = await open('1.0');
  writer.write(Buffer.from('data: a\n\n'));
  writer.flush();
  res.end();
  await client.closed;
  expect(body()).toBe('data: a\n\n');
});

test.each([
  ['has left', (res: ServerResponse) => res.destroy()],
  ['has closed its side', (res: ServerResponse) => res.socket?.end()],
])('nothing is written for a client that %s, and it causes no clientError', async (_what, leave) => {
  const { res, writer, writes, onFull } = await open();
  const failed = jest.fn();
  server.on('clientError', failed);
  if (res.socket) leave(res);
  writer.write(Buffer.from('data: a\n\n'));
  await new Promise(setImmediate);
  expect(writes).not.toHaveBeenCalled();
  expect(onFull.mock.calls.length + failed.mock.calls.length).toBe(0);
});

/** A sink to a response that has closed; `heartbeats` is called by it. */
async function closedSink(heartbeats: { watch(): void; unwatch(): void }) {
  const asked = Promise.withResolvers<ServerResponse>();
  const port = await listen((res) => {
    res.destroy();
    asked.resolve(res);
  });
  request({ port })
    .on('error', () => {})
    .end();
  const res = await asked.promise;
  if (!res.closed) await once(res, 'close');
  return responseSink({
    ...{ res, stream: { bytes: 0 }, log: {}, heartbeats },
    identity: { requestId: 'r', bot: { namespace: 'n', botProviderName: 'b' } },
  });
}

test('a stream to a response that has closed already is told so at once, gets no heartbeats, and leaves no timer', async () => {
  let [watched, closed] = [0, 0];
  const sink = await closedSink({ watch: () => watched++, unwatch: () => watched-- });
  sink.open({ full() {}, drained() {}, mayBeat: () => true, closed: () => closed++ });
  expect([closed, watched]).toEqual([1, 0]);
  const timers = jest.spyOn(globalThis, 'setTimeout');
  sink.endEarly(new Problem('stopped', 'Stopped.'), false);
  expect(timers).not.toHaveBeenCalled();
  timers.mockRestore();
});
