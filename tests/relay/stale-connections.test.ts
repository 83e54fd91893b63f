import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { type Pair, startPair, until } from '../support/pair.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { expectNoCanary } from '../support/relay.ts';

const STREAM = wholeStream('data: a\n\n');
/** The body of a message which the upstream takes and then closes its connection. */
const DROPPED = '{"drop":1}';
/** The body of a message which the upstream takes and never answers. */
const UNANSWERED = '{"wait":1}';

let pair: Pair;
afterEach(() => pair.close());

/** Lets a first message pass; what comes next over its connection is not processed but handed to `onBytes`. */
async function keptConnection(onBytes: (socket: Socket) => void) {
  let calls = 0;
  pair = await startPair((socket, { body }) => {
    if (String(body) === DROPPED) socket.destroy();
    else if (String(body) !== UNANSWERED) socket.write(STREAM);
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

describe('a message that is sent into a connection which is just being closed', () => {
  test.each([
    ['closed', (socket: Socket) => socket.destroy()],
    ['ended', (socket: Socket) => socket.end()],
    ['reset', (socket: Socket) => socket.resetAndDestroy()],
  ])('is sent once more over a new one, if the old one is %s (S17)', async (_name, close) => {
    const calls = await keptConnection(close);
    const { response, text } = await second('{"n":2}');
    expect(response.status).toBe(200);
    expect(text).toBe('data: a\n\n');
    expect(calls()).toBe(1);
    expect(pair.upstream.sockets).toHaveLength(2);
    expect(processed().slice(1)).toEqual(['{"n":2}']);
    // Nobody keeps the new one.
    await until(() => pair.upstream.sockets[1]?.destroyed === true);
  });

  test('is not sent into another one of that kind (S17)', async () => {
    const waiting: Socket[] = [];
    pair = await startPair((socket) => {
      waiting.push(socket);
      // Both at once, so that each has a connection of its own.
      if (waiting.length === 2) for (const each of waiting) each.write(STREAM);
      if (waiting.length > 2) socket.write(STREAM);
    });
    await Promise.all([0, 1].map(async () => (await pair.relay.send(pair.cookie)).text()));
    expect(pair.upstream.sockets).toHaveLength(2);
    for (const socket of pair.upstream.sockets) {
      socket.removeAllListeners('data');
      socket.once('data', () => socket.destroy());
    }
    const { response, text } = await second('{"n":2}');
    expect(response.status).toBe(200);
    expect(text).toBe('data: a\n\n');
    expect(pair.upstream.sockets).toHaveLength(3);
  });

  test('and has to end while it is sent once more does not invite another try', async () => {
    await keptConnection((socket) => socket.destroy());
    const arrived = pair.upstream.nextRequest();
    const answer = second(UNANSWERED);
    await arrived;
    pair.relay.open.endAll(new Problem('draining', 'Gone.'));
    const { response, text } = await answer;
    // The bot service has it by now.
    expect(response.status).toBe(502);
    expect(JSON.parse(text)).toMatchObject({ code: 'answer_lost' });
  });

  test('is not sent a third time (S17)', async () => {
    const calls = await keptConnection((socket) => socket.destroy());
    const { response } = await second(DROPPED);
    expect(response.status).toBe(502);
    expect(calls()).toBe(1);
    expect(pair.upstream.sockets).toHaveLength(2);
  });

  test('is not sent again if that connection breaks later than a stale one does (S17)', async () => {
    const calls = await keptConnection((socket) => void setTimeout(() => socket.destroy(), 1300));
    const { response, text } = await second('{"n":2}');
    expect(response.status).toBe(502);
    expect(JSON.parse(text)).toMatchObject({ code: 'upstream_unreachable' });
    expectNoCanary(text);
    expect(calls()).toBe(1);
    expect(processed().slice(1)).toEqual([]);
    expect(pair.upstream.sockets).toHaveLength(1);
  });

  test.each(['H', 'HTTP/1.1 200 OK\r\nContent-Type: text/ev'])(
    'is not sent again once a byte of an answer has come: %j (S17)',
    async (bytes) => {
      const calls = await keptConnection((socket) => socket.end(bytes));
      const { response, text } = await second('{"n":2}');
      expect(response.status).toBe(502);
      expectNoCanary(text);
      expect(calls()).toBe(1);
      expect(pair.upstream.sockets).toHaveLength(1);
    },
  );
});

test('a message is not sent again if a new connection is closed without an answer (S17)', async () => {
  pair = await startPair((socket) => socket.destroy());
  const { response, text } = await second('{"n":1}');
  expect(response.status).toBe(502);
  expect(JSON.parse(text)).toMatchObject({ code: 'upstream_unreachable' });
  expectNoCanary(text);
  expect(processed()).toEqual(['{"n":1}']);
  expect(pair.upstream.sockets).toHaveLength(1);
});
