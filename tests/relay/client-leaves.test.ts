import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import { chunk, STREAM_HEAD } from '../support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../support/relay-and-upstream.ts';

/** The relay needs 100 ms at most; the rest is for a busy machine. */
const SOON_MS = 2_000;
const LEAVING: [name: string, leave: (socket: Socket) => unknown][] = [
  ['closes its connection', (socket) => socket.destroy()],
  ['ends its side of the connection', (socket) => socket.end()],
  ['resets its connection', (socket) => socket.resetAndDestroy()],
];

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Resolves with the time, in ms, until the upstream saw its one connection close after the client left. */
async function timeToClose(leave: () => unknown): Promise<number> {
  const [socket] = pair.upstream.sockets as [Socket];
  const awakeMs = countAwakeMs();
  const closed = new Promise((resolve) => socket.once('close', resolve));
  leave();
  await closed;
  return awakeMs();
}

/** Expects that nothing is kept of a client that has left, and that nothing is logged as a failure. */
async function expectForgotten(): Promise<void> {
  const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
  expect(line).toMatchObject({ outcome: 'client_closed', level: 'info' });
  await until(() => pair.relay.open.count() === 0);
  expect(pair.relay.logs.filter(({ level }) => level !== 'info' && level !== 'debug')).toEqual([]);
  expect(pair.upstream.sockets).toHaveLength(1);
}

describe.each(LEAVING)('a client that %s', (_name, leave) => {
  test('before the headers of the answer closes the upstream connection', async () => {
    pair = await startRelayAndUpstream(() => {});
    const arrived = pair.upstream.nextRequest();
    const client = pair.ask();
    await arrived;
    expect(pair.relay.open.count()).toBe(1);
    expect(await timeToClose(() => leave(client.socket))).toBeLessThan(SOON_MS);
    await expectForgotten();
  });

  test('in the middle of the stream closes the upstream connection', async () => {
    pair = await startRelayAndUpstream((socket) => {
      socket.write(STREAM_HEAD);
      socket.write(chunk('data: a\n\n'));
    });
    const client = pair.ask();
    await client.waitFor('data: a\n\n');
    expect(pair.relay.open.count()).toBe(1);
    expect(await timeToClose(() => leave(client.socket))).toBeLessThan(SOON_MS);
    await expectForgotten();
  });

  test('while a refusal is being read closes the upstream connection', async () => {
    pair = await startRelayAndUpstream((socket) => {
      socket.write('HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{');
    });
    const arrived = pair.upstream.nextRequest();
    const client = pair.ask();
    await arrived;
    expect(await timeToClose(() => leave(client.socket))).toBeLessThan(SOON_MS);
    await expectForgotten();
  });
});
