import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { Response } from 'express';
import fc from 'fast-check';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { inPieces, splits, streams } from '../harness/service/event-streams.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

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
});
afterAll(() => pair.close());
afterEach(() => void jest.restoreAllMocks());

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

describe('a stream passes', () => {
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
    expect(client.text()).toMatch(
      /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\nContent-Type: text\/event-stream\r\n[\s\S]*\r\n\r\n$/i,
    );
    for (const n of [1, 2, 3, 4, 5]) {
      newest().write(chunk(`data: event ${n}\n\n`));
      await client.waitFor(`data: event ${n}\n\n`);
    }
    newest().write(LAST_CHUNK);
    await client.waitFor(LAST_CHUNK);
    const body = [1, 2, 3, 4, 5].map((n) => `data: event ${n}\n\n`).join('');
    expect(dechunk(client.text())).toMatchObject({ body, complete: true });
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
    const { sessions } = pair.relay;
    const stalled = (['get', 'set', 'extend', 'state', 'remove'] as const).map((name) =>
      jest.spyOn(sessions, name).mockReturnValue(new Promise<never>(() => {})),
    );
    socket.write(Buffer.concat([chunk('data: b\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: 'data: a\n\ndata: b\n\n', complete: true });
    for (const operation of stalled) expect(operation).not.toHaveBeenCalled();
  });

  test('and keeps neither the body of its message nor wrapped methods on its response', async () => {
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
    expect([res?.end, res?.writeHead]).toEqual([
      ServerResponse.prototype.end,
      ServerResponse.prototype.writeHead,
    ]);
  });
});

test('900 streams at once all receive bytes, and none waits for a socket', async () => {
  serve = (socket) => socket.write(STREAM_HEAD);
  const { upstream, relay } = pair;
  const before = upstream.requests.length;
  const open = relay.open.count();
  const clients: RawClient[] = [];
  while (clients.length < 900) {
    // Fewer at a time than the listen backlog.
    for (let n = 0; n < 100; n++) clients.push(ask());
    await until(() => upstream.requests.length === before + clients.length);
  }
  expect(relay.open.count()).toBe(open + 900);
  // Those that are kept from other tests are used again.
  const sockets = upstream.sockets.filter(({ destroyed }) => !destroyed);
  for (const socket of sockets) socket.write(chunk('data: a\n\n'));
  await Promise.all(clients.map((client) => client.waitFor('data: a\n\n')));
  for (const socket of sockets) socket.write(LAST_CHUNK);
  await Promise.all(clients.map((client) => client.waitFor(LAST_CHUNK)));
  await until(() => relay.open.count() === 0);
});
