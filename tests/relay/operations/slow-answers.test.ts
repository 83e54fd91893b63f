import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, get, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { FailureNotes } from '../../../src/errors.ts';
import { CLIENT_LEFT } from '../../../src/http/client-connection.ts';
import type { CarriedStream } from '../../../src/http/locals.ts';
import { pipeFile, sendBody } from '../../../src/relay/operations/send-answer.ts';
import { call } from '../../harness/clients/call.ts';
import { operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { pass, stopClock } from '../../harness/clock/stop-clock.ts';
import { startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';

const LONG = 60_000;
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

async function listen(answer: (req: IncomingMessage, res: ServerResponse) => void): Promise<number> {
  const server = createServer(answer);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

/** A server that passes on the file of `service`; `over` is how that ended, and what is left of its first pieces. */
async function carrier(
  service: (req: IncomingMessage, res: ServerResponse) => void,
  times = { stallMs: LONG, wholeMs: LONG },
) {
  const from = await listen(service);
  const stream: CarriedStream = { bytes: 0 };
  const log: FailureNotes = {};
  const pieces: Buffer[] = [];
  const over = Promise.withResolvers<unknown>();
  const port = await listen((_req, res) => {
    get({ port: from, host: '127.0.0.1', agent: false }, (answer) => {
      res.setHeader('Content-Length', answer.headers['content-length'] ?? 0);
      answer.on('data', (bytes: Buffer) => void pieces.push(bytes));
      const { signal } = new AbortController();
      pipeFile(answer, { res, signal, stream, log, times }).then(
        () => over.resolve('whole'),
        (reason: unknown) => {
          res.destroy();
          over.resolve(reason);
        },
      );
    });
  });
  return { port, stream, log, pieces, over: over.promise };
}

/** Asks for the file, and reads it unless it `stalls`. */
function ask(port: number, stalls = false) {
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  const received: Buffer[] = [];
  if (stalls) socket.pause();
  else socket.on('data', (bytes) => void received.push(bytes));
  const closed = new Promise<Buffer>((resolve) => socket.on('close', () => resolve(Buffer.concat(received))));
  return { socket, closed };
}

describe('a download', () => {
  test('comes byte for byte, however slowly the client reads, and frees what has left', async () => {
    const file = randomBytes(8_000_000);
    const { port, over, stream, pieces } = await carrier((_req, res) => res.end(file));
    const { socket, closed } = ask(port);
    const slow = setInterval(() => {
      socket.pause();
      setTimeout(() => socket.resume(), 5);
    }, 10);
    const received = await closed;
    clearInterval(slow);
    expect(await over).toBe('whole');
    expect(received.subarray(-file.length).equals(file)).toBe(true);
    expect(stream.bytes).toBe(file.length);
    expect(pieces.map(({ length }) => length)).toEqual(pieces.map(() => 0));
  });

  test('is cut when the bot service sends nothing for the stall time', async () => {
    const { port, over, log } = await carrier(
      (_req, res) => {
        res.writeHead(200, { 'Content-Length': 1000 }).write('abc');
      },
      { stallMs: 50, wholeMs: LONG },
    );
    const { closed } = ask(port);
    expect(await over).toMatchObject({ code: 'upstream_stream_broken', cause: 'ETIMEDOUT' });
    expect(String(await closed)).toMatch(/\r\n\r\nabc$/);
    expect(log).toEqual({});
  });

  test('is cut when the client reads nothing for the stall time', async () => {
    const { port, over, log, stream } = await carrier((_req, res) => res.end(Buffer.alloc(64_000_000)), {
      stallMs: 300,
      wholeMs: LONG,
    });
    const { socket } = ask(port, true);
    expect(await over).toBe(CLIENT_LEFT);
    expect(log).toEqual({ outcome: 'client_stalled' });
    // No more was taken than the buffers on the way hold.
    expect(stream.bytes).toBeLessThan(32_000_000);
    socket.destroy();
  });

  test('is cut after the whole time, though bytes come', async () => {
    let drip: NodeJS.Timeout | undefined;
    const { port, over, stream } = await carrier(
      (_req, res) => {
        res.writeHead(200, { 'Content-Length': 100_000 });
        drip = setInterval(() => res.write('x'), 10);
      },
      { stallMs: LONG, wholeMs: 300 },
    );
    ask(port);
    expect(await over).toMatchObject({ code: 'upstream_stream_broken', cause: 'ETIMEDOUT' });
    clearInterval(drip);
    expect(stream.bytes).toBeGreaterThan(1);
  });

  test('goes on while bytes come, longer than the stall time, also after a pause of the process', async () => {
    const times = { stallMs: 700, wholeMs: LONG };
    const { port, over } = await carrier((_req, res) => {
      res.writeHead(200, { 'Content-Length': 20 });
      let left = 20;
      const drip = setInterval(() => {
        res.write('x');
        left -= 1;
        if (left === 10) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, times.stallMs);
        if (left === 0) clearInterval(drip);
      }, 50);
    }, times);
    ask(port);
    expect(await over).toBe('whole');
  });

  test('that broke off before it is passed on is broken at once', async () => {
    const from = await listen((_req, res) => {
      res.writeHead(200, { 'Content-Length': 1000 }).write('abc', () => res.destroy());
    });
    const answer = await new Promise<IncomingMessage>((resolve) => {
      get({ port: from, host: '127.0.0.1', agent: false }, resolve);
    });
    answer.on('error', () => {});
    await new Promise((resolve) => answer.resume().once('close', resolve));
    const over = Promise.withResolvers<unknown>();
    const port = await listen((_req, res) => {
      const { signal } = new AbortController();
      const times = { stallMs: 2_000, wholeMs: LONG };
      pipeFile(answer, { res, signal, stream: { bytes: 0 }, log: {}, times }).catch((reason: unknown) => {
        res.destroy();
        over.resolve(reason);
      });
    });
    ask(port);
    expect(await over.promise).toMatchObject({ code: 'upstream_stream_broken', cause: 'ECONNRESET' });
  });
});

/** More than the buffers between a server and a client hold. */
const MUCH = Buffer.alloc(24 << 20, 'a');

/** Longer than a test takes. */
const LONG_TIMES = { stallMs: 600_000, wholeMs: 600_000 };

const closings: (() => Promise<unknown>)[] = [];
afterEach(() => Promise.all(closings.splice(0).map((close) => close())));

/** Sends `MUCH` to a client that reads nothing yet. */
async function send(times: { stallMs: number; wholeMs: number }, signal = new AbortController().signal) {
  const log: { outcome?: string } = {};
  const over = Promise.withResolvers<unknown>();
  const begun = Promise.withResolvers<Socket>();
  const server = createServer((_req, res) => {
    sendBody(MUCH, { res, signal, log, times }).then(
      () => over.resolve('sent'),
      (reason) => {
        res.destroy();
        over.resolve(reason);
      },
    );
    begun.resolve(res.socket as Socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = rawClient((server.address() as AddressInfo).port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n');
  client.socket.pause();
  closings.push(() => {
    client.socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return { client, log, over: over.promise, begun: begun.promise };
}

describe('a whole answer', () => {
  test('is cut when its client takes too long to read it, though it goes on reading', async () => {
    const { client, log, over } = await send({ ...LONG_TIMES, wholeMs: 500 });
    const reading = setInterval(() => client.socket.resume().once('data', () => client.socket.pause()), 20);
    expect(await over).toBe(CLIENT_LEFT);
    clearInterval(reading);
    expect(log).toEqual({ outcome: 'client_stalled' });
    client.socket.resume();
    await client.closed;
    expect(client.text().length).toBeLessThan(MUCH.length);
  });

  test('is cut when its client reads nothing for a while', async () => {
    const { client, log, over } = await send({ ...LONG_TIMES, stallMs: 300 });
    expect(await over).toBe(CLIENT_LEFT);
    expect(log).toEqual({ outcome: 'client_stalled' });
    client.socket.resume();
    await client.closed;
    expect(client.text().length).toBeLessThan(MUCH.length);
  });

  test('is not cut while its client reads slowly', async () => {
    stopClock();
    const stallMs = 1_000;
    const { client, over, begun } = await send({ ...LONG_TIMES, stallMs });
    const served = await begun;
    for (let n = 0; n < 4; n += 1) {
      const before = served.bytesWritten;
      // It takes no more than it must, so that there is something left for the next time.
      while (served.bytesWritten === before) {
        client.socket.resume();
        await once(client.socket, 'data');
        client.socket.pause();
        await setImmediate();
      }
      pass(stallMs - 1);
    }
    client.socket.resume();
    expect(await over).toBe('sent');
  });

  test('is sent when its client has read it', async () => {
    const { client, log, over } = await send(LONG_TIMES);
    client.socket.resume();
    expect(await over).toBe('sent');
    expect(log).toEqual({});
  });

  test('ends with its signal, also with one that has aborted before', async () => {
    const stop = new AbortController();
    const { over, begun } = await send(LONG_TIMES, stop.signal);
    await begun;
    stop.abort('over');
    expect(await over).toBe('over');
    const { client, over: atOnce } = await send(LONG_TIMES, stop.signal);
    // The request comes only with the connection.
    client.socket.resume();
    expect(await atOnce).toBe('over');
  });
});

test('an operation whose client does not read its answer is under way until then', async () => {
  const pair = await startRelayAndUpstream(
    (socket) => void socket.write(jsonAnswer('200 OK', 'a'.repeat((1 << 20) - 2))),
  );
  closings.push(pair.close);
  const { path } = operationRequest(operationAt('GET channel/metadata'));
  const request = `GET ${path} HTTP/1.1\r\nHost: app.example.com\r\nCookie: ${pair.cookie}\r\n\r\n`;
  // So many that the buffers between do not hold all of their answers.
  const client = rawClient(pair.relay.port, request.repeat(5));
  client.socket.pause();
  const ended = () => pair.relay.logs.filter(({ bot }) => bot === 'acme/helper').length;
  // Nothing moves any more.
  for (let before = -1, same = 0; same < 20; before = ended()) {
    await call(pair.relay.port, '/healthz');
    same = ended() > 0 && ended() === before ? same + 1 : 0;
  }
  expect(pair.upstream.requests.length).toBe(ended() + 1);
  const logout = { method: 'POST', headers: { Cookie: pair.cookie } };
  expect((await call(pair.relay.port, '/auth/logout', logout)).status).toBe(204);
  expect(await pair.relay.logLine(({ outcome }) => outcome === 'session_ended')).toMatchObject({
    status: 200,
  });
  client.socket.destroy();
});
