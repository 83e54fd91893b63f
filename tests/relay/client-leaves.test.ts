import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type Pair, startPair, until } from '../support/pair.ts';
import { chunk, STREAM_HEAD } from '../support/raw-upstream.ts';

/** A tenth of a second is meant; the rest is for a busy machine. */
const SOON_MS = 500;
const LEAVING: [name: string, leave: (socket: Socket) => unknown][] = [
  ['closes its connection', (socket) => socket.destroy()],
  ['ends its side of the connection', (socket) => socket.end()],
  ['resets its connection', (socket) => socket.resetAndDestroy()],
];

let pair: Pair;
afterEach(() => pair.close());

/** Resolves with the time, in ms, until the upstream saw its one connection close after the client left. */
async function timeToClose(leave: () => unknown): Promise<number> {
  const [socket] = pair.upstream.sockets as [Socket];
  const leftAt = performance.now();
  const closed = new Promise((resolve) => socket.once('close', resolve));
  leave();
  await closed;
  return performance.now() - leftAt;
}

/** What has to be true once a client has left: it is forgotten, and its leaving is no failure. */
async function expectForgotten(): Promise<void> {
  const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
  expect(line).toMatchObject({ outcome: 'client_closed', level: 'info' });
  await until(() => pair.relay.open.count() === 0);
  expect(pair.relay.logs.filter(({ level }) => level !== 'info' && level !== 'debug')).toEqual([]);
  expect(pair.upstream.sockets).toHaveLength(1);
}

describe.each(LEAVING)('a client that %s', (_name, leave) => {
  test('before the headers of the answer closes the upstream connection (S14)', async () => {
    pair = await startPair(() => {});
    const arrived = pair.upstream.nextRequest();
    const client = pair.ask();
    await arrived;
    expect(pair.relay.open.count()).toBe(1);
    expect(await timeToClose(() => leave(client.socket))).toBeLessThan(SOON_MS);
    await expectForgotten();
  });

  test('in the middle of the stream closes the upstream connection (S14)', async () => {
    pair = await startPair((socket) => {
      socket.write(STREAM_HEAD);
      socket.write(chunk('data: a\n\n'));
    });
    const client = pair.ask();
    await client.waitFor('data: a\n\n');
    expect(pair.relay.open.count()).toBe(1);
    expect(await timeToClose(() => leave(client.socket))).toBeLessThan(SOON_MS);
    await expectForgotten();
  });

  test('while a refusal is being read closes the upstream connection (S14)', async () => {
    pair = await startPair((socket) => {
      socket.write('HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{');
    });
    const arrived = pair.upstream.nextRequest();
    const client = pair.ask();
    await arrived;
    expect(await timeToClose(() => leave(client.socket))).toBeLessThan(SOON_MS);
    await expectForgotten();
  });
});
