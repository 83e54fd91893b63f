import { EventEmitter } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import express from 'express';
import fc from 'fast-check';
import { connectionBounds } from '../../src/arrive/connection-bounds.ts';
import { serveConnections } from '../../src/arrive/serve-connections.ts';
import { createLogger } from '../../src/logger.ts';
import { call, expectNobody, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const PROBE = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n';
const OK = '{"status":"ok"}';
const DONE = wholeStream('data: 1\n\n');
const END = Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]);
const RUNNING = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);

let pair: RelayAndUpstream;
const clients: RawClient[] = [];
afterEach(async () => {
  for (const { socket } of clients.splice(0)) socket.destroy();
  await pair?.close();
});

type OnRequest = Parameters<typeof startRelayAndUpstream>[0];
/** Starts a relay in front of a service that answers so; a run that nobody reads is over at once. */
async function start(answer: Buffer | string | OnRequest, environment: Record<string, string> = {}) {
  const onRequest = typeof answer === 'function' ? answer : (socket: Socket) => void socket.write(answer);
  pair = await startRelayAndUpstream(onRequest, { JOIN_GRACE_MS: '0', ...environment });
}
function open(bytes: string, allowHalfOpen = false): RawClient {
  const client = rawClient(pair.relay.port, bytes, { allowHalfOpen });
  clients.push(client);
  return client;
}
async function openIdle(): Promise<RawClient> {
  const client = open(PROBE);
  await client.waitFor(OK);
  return client;
}
/** A client whose stream runs, each with a message of its own. */
async function openStream(): Promise<RawClient> {
  const client = open(rawMessage({ cookie: pair.cookie, body: `{"text":"message ${clients.length}"}` }));
  await client.waitFor('data: 1\n\n');
  return client;
}
/** Once a later request is served, what was sent before it has arrived. */
const arrived = () => call(pair.relay.port, '/healthz');
const statuses = ({ text }: RawClient) => text().match(/HTTP\/1\.1 \d+/g);

/** A connection that is open, by the rules of the bounds. */
interface Held {
  readonly socket: Socket;
  readonly address: string;
  readonly isReserved: boolean;
  /** When it became idle; it is in use if there is none. */
  idleSince: number | undefined;
}
/** What the bounds need of a connection. */
function fakeSocket(remoteAddress: string): Socket {
  const socket = Object.assign(new EventEmitter(), {
    remoteAddress,
    destroyed: false,
    destroy() {
      if (socket.destroyed) return;
      socket.destroyed = true;
      socket.emit('close');
    },
  });
  return socket as unknown as Socket;
}

test('whatever comes, over a bound the connection that has been idle for longest is closed, else the new one is reserved or refused', () => {
  const [MOST, OF_ADDRESS, RESERVED] = [3, 2, 16];
  const step = fc.record({
    kind: fc.constantFrom('take', 'take', 'take', 'use', 'idle', 'close'),
    address: fc.integer({ min: 1, max: 15 }).map((n) => `192.0.2.${n}`),
    which: fc.nat(),
  });
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 80, size: 'max' }), (steps) => {
      const refused: string[] = [];
      const limits = { most: MOST, mostOfAddress: OF_ADDRESS };
      const bounds = connectionBounds({ ...limits, onRefused: (by) => refused.push(by) });
      let held: Held[] = [];
      const sockets: Socket[] = [];
      for (const [now, { kind, address, which }] of steps.entries()) {
        const one = held[which % held.length];
        if (kind === 'take') {
          const before = refused.length;
          /** Whether one of these may be added, for which the one that has been idle for longest is closed. */
          const hasRoom = (isOne: (one: Held) => boolean, most: number) => {
            const all = held.filter(isOne);
            if (all.length < most) return true;
            const idle = all.filter(({ idleSince }) => idleSince !== undefined);
            const [oldest] = idle.sort((a, b) => (a.idleSince ?? 0) - (b.idleSince ?? 0));
            held = held.filter((each) => each !== oldest);
            return oldest !== undefined;
          };
          const expected = !hasRoom((each) => each.address === address, OF_ADDRESS)
            ? 'address'
            : hasRoom((each) => !each.isReserved, MOST)
              ? 'usual'
              : hasRoom((each) => each.isReserved, RESERVED)
                ? 'reserved'
                : 'instance';
          const socket = fakeSocket(address);
          const isTaken = bounds.take(socket);
          const kindTaken = bounds.isReserved(socket) ? 'reserved' : 'usual';
          expect(isTaken ? kindTaken : refused[before]).toBe(expected);
          if (isTaken) held.push({ socket, address, isReserved: expected === 'reserved', idleSince: now });
          sockets.push(socket);
        } else if (one && kind === 'close') {
          held.splice(held.indexOf(one), 1);
          one.socket.destroy();
        } else if (one) {
          bounds.setIdle(one.socket, kind === 'idle');
          one.idleSince = kind === 'idle' ? (one.idleSince ?? now) : undefined;
        }
        const open = sockets.filter(({ destroyed }) => !destroyed);
        expect(new Set(open)).toEqual(new Set(held.map(({ socket }) => socket)));
      }
    }),
    { numRuns: 300 },
  );
});

/** Asks once more on a connection that is open; resolves with what has come since. */
async function askAgain(client: RawClient): Promise<string> {
  const before = client.text().length;
  client.socket.write(PROBE);
  await until(() => client.text().slice(before).includes(OK));
  return client.text().slice(before);
}

describe('with as many connections as MAX_CONNECTIONS', () => {
  const BEHIND_PROXY = { TRUST_PROXY: '1' };

  test('the one that has been idle for longest is closed for a new one', async () => {
    await start(RUNNING, { ...BEHIND_PROXY, MAX_CONNECTIONS: '3' });
    const [first, second, third] = [await openIdle(), await openIdle(), await openIdle()];
    await askAgain(first);
    await askAgain(third);
    await openIdle();
    await second.closed;
    expect(await askAgain(third)).toContain(' 200 OK');
    expect(await askAgain(first)).toContain(' 200 OK');
  });

  test('of which all are in use, probes are answered, everything else is refused, and streams go on', async () => {
    await start(RUNNING, { ...BEHIND_PROXY, MAX_CONNECTIONS: '2' });
    const streams = [await openStream(), await openStream()];
    for (const probe of [PROBE, PROBE.replace('healthz', 'readyz')]) {
      const client = open(probe);
      await client.closed;
      expect(parseAnswer(client.text())).toMatchObject({ status: 200, headers: { connection: 'close' } });
    }
    const refused = open(rawMessage({ cookie: pair.cookie }));
    await refused.closed;
    const answer = parseAnswer(refused.text());
    expectProblem(answer, 503, 'busy', { retryable: 'new message' });
    expect(answer.headers).toMatchObject({ connection: 'close', 'retry-after': '1' });
    expect(pair.upstream.requests).toHaveLength(2);
    expect(await pair.relay.logLine(({ outcome }) => outcome === 'busy')).toMatchObject({ status: 503 });
    for (const socket of pair.upstream.sockets) socket.write(chunk('data: 2\n\n'));
    for (const stream of streams) await stream.waitFor('data: 2\n\n');
    streams[0]?.socket.destroy();
    await until(async () => {
      const client = open(rawMessage({ cookie: pair.cookie }));
      return client.waitFor('data: 1\n\n').then(
        () => true,
        () => false,
      );
    });
  });

  test('a flood of silent ones closes its own before a probe', async () => {
    await start(RUNNING, { ...BEHIND_PROXY, MAX_CONNECTIONS: '1' });
    await openStream();
    const silent = Array.from({ length: 40 }, () => open(''));
    await Promise.race(silent.map(({ closed }) => closed));
    const client = open(PROBE);
    await client.closed;
    expect(client.text()).toContain(OK);
  });
});

describe('without a trusted proxy', () => {
  test('one address gets a quarter of the connections, and others are served', async () => {
    await start(RUNNING, { MAX_CONNECTIONS: '8' });
    await openStream();
    const idle = await openIdle();
    await openStream();
    await idle.closed;
    const refused = open(PROBE);
    await refused.closed;
    expect(refused.text()).toBe('');
    const line = await pair.relay.logLine(({ msg }) => msg === 'connections refused');
    expect(line).toMatchObject({ level: 'warn', cause: 'address', refused: 1 });
    expect(
      total(await pair.relay.metricsText(), 'bot_relay_connections_refused_total', { reason: 'address' }),
    ).toBe(1);
    const other = connect({ port: pair.relay.port, host: '127.0.0.1', localAddress: '127.0.0.2' });
    other.write(PROBE);
    let answer = '';
    for await (const part of other) {
      answer += String(part);
      if (answer.includes(OK)) break;
    }
    expect(answer).toContain(' 200 OK');
  });
});

test('an idle connection is closed after KEEP_ALIVE_MS', async () => {
  await start(RUNNING, { KEEP_ALIVE_MS: '1' });
  const client = await openIdle();
  expect(await client.closed).toEqual({ error: undefined });
});

const second = () => rawMessage({ cookie: pair.cookie, body: '{"text":"second"}' });
const cuts = () => pair.relay.logs.filter(({ msg }) => msg === 'too many requests at once on a connection');

describe('behind a running stream on one connection', () => {
  test('text that is not HTTP causes no answer either if the request of the stream had an unknown Expect', async () => {
    await start(RUNNING);
    const client = pair.ask({ headers: ['Expect: the-best'] });
    clients.push(client);
    await client.waitFor('data: 1\n\n');
    client.socket.write('no HTTP at all\r\n\r\n');
    await client.closed;
    expect(statuses(client)).toEqual(['HTTP/1.1 200']);
    expect(client.text()).not.toContain('problem+json');
  });

  test.each([
    ['text that is not HTTP', 'no HTTP at all\r\n\r\n'],
    ['a large header', `GET / HTTP/1.1\r\nX-Large: ${'x'.repeat(20_000)}\r\n\r\n`],
    ['CONNECT', 'CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n'],
    [
      'a malformed body',
      'POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    ],
  ])('%s causes no answer in the middle of the stream', async (_what, bytes) => {
    await start(RUNNING);
    const client = await openStream();
    client.socket.write(bytes);
    await client.closed;
    expect(statuses(client)).toEqual(['HTTP/1.1 200']);
    expect(client.text()).not.toContain('problem+json');
    expect(dechunk(client.text())).toMatchObject({ complete: false });
  });

  test('a valid request is answered after the stream', async () => {
    await start(RUNNING);
    const client = await openStream();
    client.socket.write(PROBE);
    pair.upstream.sockets[0]?.write(END);
    await client.waitFor('{"status":"ok"}');
    expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
    expect(client.text().indexOf('{"status"')).toBeGreaterThan(client.text().indexOf('data: 2'));
  });

  test('a message is sent after the stream, and its own answer can break like any other', async () => {
    await start((socket, { body }) => {
      socket.write(STREAM_HEAD);
      if (String(body).includes('second')) socket.end('ff\r\ndata: half');
      else socket.write(chunk('data: first\n\n'));
    });
    const client = pair.ask();
    await client.waitFor('data: first');
    client.socket.write(second());
    await arrived();
    expect(pair.upstream.requests).toHaveLength(1);
    pair.upstream.sockets[0]?.write(LAST_CHUNK);
    await client.waitFor('upstream_stream_broken');
    await until(() => client.text().endsWith(LAST_CHUNK));
    expect(pair.upstream.requests).toHaveLength(2);
    // Both end in order; the second one says that it is not complete, and half an event is dropped.
    expect(client.text().split(LAST_CHUNK)).toHaveLength(3);
    expect(client.text()).not.toContain('data: half');
    await pair.relay.untilOpen(0);
  });

  test('a message is not sent if its client leaves meanwhile', async () => {
    await start(RUNNING);
    const client = await openStream();
    client.socket.write(second());
    await arrived();
    client.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    await arrived();
    expect(pair.upstream.requests).toHaveLength(1);
    expect(await pair.relay.openMessages()).toBe(0);
  });

  test('a message is not sent if the stream ends with the connection', async () => {
    await start(DONE);
    const headers = ['Connection: keep-alive'];
    const client = pair.ask({ version: '1.0', headers });
    client.socket.write(rawMessage({ cookie: pair.cookie, version: '1.0', headers }));
    await client.closed;
    await arrived();
    expect(client.text()).toContain('data: 1');
    expect(pair.upstream.requests).toHaveLength(1);
    expect(await pair.relay.openMessages()).toBe(0);
  });

  test.each([
    [
      'a body that is too large to be buffered',
      () => rawMessage({ cookie: pair.cookie, body: JSON.stringify('x'.repeat(100_000)) }),
    ],
    ['a fifth request that waits', () => PROBE],
  ])('%s cuts the connection, which is logged and counted, and ends the message', async (_what, bytes) => {
    await start(RUNNING);
    const client = await openStream();
    client.socket.write(PROBE.repeat(4));
    await arrived();
    expect(client.socket.destroyed).toBe(false);
    client.socket.write(bytes());
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ complete: false });
    expect(cuts()).toEqual([{ level: 'info', time: expect.any(String), msg: expect.any(String), most: 5 }]);
    expect(total(await pair.relay.metricsText(), 'bot_relay_connections_cut_total')).toBe(1);
    await until(() => pair.upstream.sockets[0]?.destroyed === true);
    expect([pair.upstream.requests.length, await pair.relay.openMessages()]).toEqual([1, 0]);
  });
});

describe('on a connection', () => {
  test('one request is served, four wait, and all are answered', async () => {
    await start('');
    const many = open(PROBE.repeat(5));
    await until(() => statuses(many)?.length === 5);
    many.socket.write(PROBE.repeat(4) + PROBE.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
    await many.closed;
    expect(statuses(many)).toHaveLength(10);
    expect(cuts()).toEqual([]);
  });

  test('requests beyond the limit are dropped and not served', async () => {
    await start('');
    await open(PROBE.repeat(2000)).closed;
    await call(pair.relay.port, '/auth/session');
    expect(pair.relay.logs.filter(({ route }) => route === '/healthz').length).toBeLessThanOrEqual(5);
    expect(cuts()).toHaveLength(1);
  });

  test('each message may have a large body once the answer before it is complete', async () => {
    await start(DONE);
    const body = JSON.stringify({ text: 'x'.repeat(200_000) });
    const client = pair.ask({ body });
    for (let count = 2; count <= 5; count += 1) {
      await until(() => client.text().split(LAST_CHUNK).length === count);
      client.socket.write(rawMessage({ cookie: pair.cookie, body }));
    }
    await until(() => client.text().split(LAST_CHUNK).length === 6);
    expect(pair.upstream.requests.map((request) => request.body.length)).toEqual(Array(5).fill(body.length));
  });

  test('a client that sends CONNECT and resets it does not end the process', async () => {
    await start('');
    const bytes = 'CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n';
    const tunnel = open(bytes, true);
    await tunnel.waitFor('"}');
    tunnel.socket.resetAndDestroy();
    await tunnel.closed;
    expect(await arrived()).toMatchObject({ status: 200 });
  });
});

describe('on a connection, a request of another protocol', () => {
  const FOREIGN = [
    ...['DESCRIBE /healthz RTSP/1.0', 'GET /healthz RTSP/1.0', 'SOURCE /healthz ICE/1.0'],
    ...['\r\n\n\rGET   /healthz   RTSP/1.0', 'PLAY * RTSP/1.0'],
  ];

  test('is answered with 400, whatever body of HTTP is before it, and however the bytes are cut', async () => {
    await start('');
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...FOREIGN),
        fc.option(
          fc.record({
            letter: fc.constantFrom('A', 'x', ' ', '\n', '_'),
            length: fc.oneof(fc.nat(15), fc.integer({ min: 900, max: 1100 })),
          }),
        ),
        fc.array(fc.nat(), { minLength: 1, maxLength: 5 }),
        async (line, before, cuts) => {
          const body = before ? before.letter.repeat(before.length) : '';
          const head = `GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n`;
          const client = open('');
          const [first = 0, ...ends] = cuts.map((cut) => cut % line.indexOf('/1.0')).sort((a, b) => a - b);
          if (before) {
            client.socket.write(head + body + line.slice(0, first));
            await client.waitFor(OK);
          }
          const rest = `${before ? line.slice(first) : line}\r\nHost: a\r\n\r\n`;
          await writeIn(client, rest, before ? ends.map((end) => end - first) : ends);
          await client.closed;
          expect(statuses(client)).toEqual([...(before ? ['HTTP/1.1 200'] : []), 'HTTP/1.1 400']);
        },
      ),
      { numRuns: 200 },
    );
  });

  test('is answered with 400 if it has more spaces than a line may have', async () => {
    await start('');
    const spaces = ' '.repeat(50_000);
    for (const line of [`GET${spaces}/healthz RTSP/1.0`, `GET /healthz${spaces}RTSP/1.0`]) {
      const client = open(`${line}\r\nHost: a\r\n\r\n`);
      await client.waitFor('}');
      expectProblem(parseAnswer(client.text()), 400, 'bad_request');
    }
  });

  test.each([
    ['short lines', `${'A'.repeat(13)}${' '.repeat(1000)}\r\n`],
    ['half lines', `${'A'.repeat(13)} ${'A'.repeat(1000)} ${' '.repeat(16)}A\r\n`],
    ['lines of RTSP', 'GET a RTSP/'],
  ])('is not seen in a body of %s, which is read like any other', async (_what, part) => {
    await start('');
    const client = open(rawMessage({ body: part.repeat(Math.ceil(200_000 / part.length)) }));
    await client.waitFor('}');
    expectProblem(parseAnswer(client.text()), 401, 'unauthenticated');
  });
});

/** Writes `bytes`, cut at these places, each part once the one before is written. */
async function writeIn(client: RawClient, bytes: string, cuts: readonly number[]) {
  const ends = [...cuts, bytes.length].sort((a, b) => a - b);
  for (const [n, end] of ends.entries())
    await new Promise<unknown>((sent) => client.socket.write(bytes.slice(ends[n - 1] ?? 0, end), sent));
}

describe('the parser of HTTP', () => {
  /** As `feed-parser.ts` has it. */
  const PIECE_BYTES = 1024;
  let server: Server;
  let bodies: string[] = [];
  /** The length of each piece that the parser has got, and of each read once the parser has had it. */
  let given: number[] = [];
  let left: number[] = [];
  beforeAll(async () => {
    const app = express();
    app.post('/', (req, res) => {
      const pieces: Buffer[] = [];
      req.on('data', (piece: Buffer) => void pieces.push(piece));
      req.on('end', () => {
        bodies.push(Buffer.concat(pieces).toString('latin1'));
        res.end('done');
      });
    });
    server = createServer();
    server.on('connection', (socket: Socket) => {
      const [parse] = socket.listeners('data');
      socket.removeListener('data', parse as (data: Buffer) => void);
      socket.on('data', (piece: Buffer) => {
        given.push(piece.length);
        parse?.call(socket, piece);
      });
    });
    const bounds = connectionBounds({ most: 100, mostOfAddress: 100 });
    serveConnections(server, app, { logger: createLogger('silent'), bounds });
    server.on('connection', (socket: Socket) => socket.on('data', (data: Buffer) => left.push(data.length)));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });

  /** Sends the parts one after the other on one connection, each once the one before is written. */
  async function send(parts: readonly Buffer[]) {
    [given, left, bodies] = [[], [], []];
    const client = rawClient((server.address() as AddressInfo).port, '');
    for (const part of parts) await new Promise<unknown>((sent) => client.socket.write(part, sent));
    await client.closed;
  }
  const request = (body: Buffer, { padding = 0, isChunked = false, isLast = false }) =>
    Buffer.concat([
      Buffer.from(
        [
          ...['POST / HTTP/1.1', 'Host: a', `X-Padding: ${'x'.repeat(padding)}`],
          ...(isLast ? ['Connection: close'] : []),
          isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`,
          '\r\n',
        ].join('\r\n'),
      ),
      ...(isChunked && body.length > 0
        ? [Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from('\r\n')]
        : []),
      isChunked ? Buffer.from('0\r\n\r\n') : body,
    ]);

  test('gives bodies as they are, however the bytes are cut, and gets more than a small piece only inside of a body with a length', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            length: fc.oneof(fc.integer({ max: 30, min: 0 }), fc.integer({ min: 0, max: 20_000 })),
            byte: fc.constantFrom(...'xA /\r\n'),
            padding: fc.integer({ min: 0, max: 4000 }),
            isChunked: fc.boolean(),
          }),
          { minLength: 1, maxLength: 3 },
        ),
        fc.array(fc.nat(), { maxLength: 4 }),
        async (requests, cuts) => {
          const all = requests.map(({ length, byte, ...how }, n) =>
            request(Buffer.alloc(length, byte), { ...how, isLast: n === requests.length - 1 }),
          );
          const bytes = Buffer.concat(all);
          const ends = [...cuts.map((cut) => cut % bytes.length), bytes.length].sort((a, b) => a - b);
          await send(
            ends.map((end, n) => bytes.subarray(ends[n - 1] ?? 0, end)).filter(({ length }) => length),
          );
          expect(bodies).toEqual(requests.map(({ length, byte }) => byte.repeat(length)));
          let from = 0;
          const inside = all.map((one, n) => {
            from += one.length;
            const { length, isChunked } = requests[n] as (typeof requests)[number];
            return isChunked ? [0, 0] : [from - length, from];
          });
          let at = 0;
          for (const length of given) {
            const isInside = inside.some(([start = 0, end = 0]) => at >= start && at + length <= end);
            if (!isInside) expect(length).toBeLessThanOrEqual(PIECE_BYTES);
            at += length;
          }
        },
      ),
      { numRuns: 60 },
    ));

  test('gets a large body as it comes, and what was read of it is freed at once', async () => {
    const body = Buffer.alloc(2_000_000, 'a');
    await send([request(body, { padding: 3000, isLast: true })]);
    expect(bodies).toEqual([String(body)]);
    const small = given.filter((length) => length <= PIECE_BYTES);
    // Those of the head, some of which may be cut, and the end of the body.
    expect(small.length).toBeLessThanOrEqual(12);
    expect(given.length).toBeLessThanOrEqual(left.length + small.length);
    expect(left.filter((length) => length === 0).length).toBeGreaterThan(left.length * 0.8);
  });
});

test('while the relay drains, a message on an open connection is answered with 503, and the connection is closed', async () => {
  await start('');
  const probe = async (path: string) => {
    const { status, body } = await call(pair.relay.port, path);
    return [status, JSON.parse(body)];
  };
  const notReady = [503, { status: 'not ready', checks: { accepting: 'failed' } }];
  expect(await probe('/readyz')).toEqual([200, { status: 'ready', checks: { accepting: 'ok' } }]);
  pair.relay.parts.lifecycle.enter('leaving');
  expect(await probe('/readyz')).toEqual(notReady);
  expectNobody(await call(pair.relay.port, '/auth/session'));
  const client = await openIdle();
  const before = client.text().length;
  pair.relay.parts.lifecycle.enter('draining');
  client.socket.write(rawMessage({ cookie: pair.cookie }));
  expect((await client.closed).error).toBeUndefined();
  const answer = parseAnswer(client.text().slice(before));
  expectProblem(answer, 503, 'draining', { retryable: 'new message' });
  expect(answer.headers).toMatchObject({ connection: 'close', 'retry-after': '1' });
  expect(pair.upstream.sockets).toHaveLength(0);
  expect(await probe('/readyz')).toEqual(notReady);
  expect(await probe('/healthz')).toEqual([200, { status: 'ok' }]);
});
