import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { expectNoCanary } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const STREAM = wholeStream('data: a\n\n');

const MAYBE_STARTED = { code: 'upstream_unreachable', status: 502, maybeStarted: true, retryable: false };

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Sends a first message; later data on its connection is only given to `onBytes`. Returns how often that was called. */
async function keptConnection(onBytes: (socket: Socket) => void) {
  let calls = 0;
  pair = await startRelayAndUpstream((socket) => {
    socket.write(STREAM);
  });
  expect(await (await pair.relay.send(pair.cookie)).text()).toBe('data: a\n\n');
  const [socket] = pair.upstream.sockets as [Socket];
  socket.removeAllListeners('data');
  socket.once('data', () => {
    calls++;
    onBytes(socket);
  });
  return () => calls;
}

async function second(body: string) {
  const response = await pair.relay.send(pair.cookie, { body });
  return { response, text: await response.text() };
}

function processed(): string[] {
  return pair.upstream.requests.map(({ body }) => String(body));
}

describe('a message on a connection that the service closes at that moment', () => {
  test.each([
    ['closed', (socket: Socket) => socket.destroy()],
    ['ended', (socket: Socket) => socket.end()],
    ['reset', (socket: Socket) => socket.resetAndDestroy()],
  ])('is answered with an error and not sent again, if the connection is %s', async (_name, close) => {
    const calls = await keptConnection(close);
    const { response, text } = await second('{"n":2}');
    expect(response.status).toBe(200);
    expect(errorEventIn(text)).toMatchObject(MAYBE_STARTED);
    expectNoCanary(text);
    expect(calls()).toBe(1);
    expect(processed().slice(1)).toEqual([]);
    expect(pair.upstream.sockets).toHaveLength(1);
  });

  test.each(['H', 'HTTP/1.1 200 OK\r\nContent-Type: text/ev'])(
    'is not sent again after a byte of an answer has arrived: %j',
    async (bytes) => {
      const calls = await keptConnection((socket) => socket.end(bytes));
      const { response, text } = await second('{"n":2}');
      expect(response.status).toBe(200);
      expect(errorEventIn(text)).toMatchObject({ ...MAYBE_STARTED, code: 'upstream_bad_response' });
      expectNoCanary(text);
      expect(calls()).toBe(1);
      expect(pair.upstream.sockets).toHaveLength(1);
    },
  );
});

test.each([
  ['closes', (socket: Socket) => socket.end()],
  ['resets', (socket: Socket) => socket.resetAndDestroy()],
  [
    'writes to',
    (socket: Socket) => socket.write('HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n'),
  ],
])('a message does not use a kept connection that the service %s while it is idle', async (_what, act) => {
  await keptConnection(() => {});
  act(pair.upstream.sockets[0] as Socket);
  const { response, text } = await second('{"n":2}');
  expect(response.status).toBe(200);
  expect(text).toBe('data: a\n\n');
  expect(processed()).toHaveLength(2);
  expect(pair.upstream.sockets).toHaveLength(2);
});

test('a message is not sent again if a new connection is closed without an answer', async () => {
  pair = await startRelayAndUpstream((socket) => socket.destroy());
  const { response, text } = await second('{"n":1}');
  expect(response.status).toBe(200);
  expect(errorEventIn(text)).toMatchObject(MAYBE_STARTED);
  expectNoCanary(text);
  expect(processed()).toEqual(['{"n":1}']);
  expect(pair.upstream.sockets).toHaveLength(1);
});
