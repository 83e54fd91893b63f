import { randomBytes } from 'node:crypto';
import { createServer, get, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { FailureNotes } from '../../../src/errors.ts';
import { CLIENT_LEFT } from '../../../src/http/client-connection.ts';
import type { CarriedStream } from '../../../src/http/locals.ts';
import { pipeFile } from '../../../src/relay/operations/send-answer.ts';

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
