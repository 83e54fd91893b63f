import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const LEAVING: [name: string, leave: (socket: Socket) => unknown][] = [
  ['closes its connection', (socket) => socket.destroy()],
  ['ends its side of the connection', (socket) => socket.end()],
  ['resets its connection', (socket) => socket.resetAndDestroy()],
];

/** A run that nobody reads is over at once. */
const NO_GRACE = { JOIN_GRACE_MS: '0' };

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Lets the client leave, and waits until the upstream has seen its one connection close. */
async function leaveAndClose(leave: () => unknown): Promise<void> {
  const [socket] = pair.upstream.sockets as [Socket];
  const closed = new Promise((resolve) => socket.once('close', resolve));
  leave();
  await closed;
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
    pair = await startRelayAndUpstream(() => {}, NO_GRACE);
    const arrived = pair.upstream.nextRequest();
    const client = pair.ask();
    await arrived;
    expect(pair.relay.open.count()).toBe(1);
    await leaveAndClose(() => leave(client.socket));
    await expectForgotten();
  });

  test('in the middle of the stream closes the upstream connection', async () => {
    pair = await startRelayAndUpstream((socket) => {
      socket.write(STREAM_HEAD);
      socket.write(chunk('data: a\n\n'));
    }, NO_GRACE);
    const client = pair.ask();
    await client.waitFor('data: a\n\n');
    expect(pair.relay.open.count()).toBe(1);
    await leaveAndClose(() => leave(client.socket));
    await expectForgotten();
  });

  test('while a refusal is being read closes the upstream connection', async () => {
    pair = await startRelayAndUpstream((socket) => {
      socket.write('HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{');
    }, NO_GRACE);
    const arrived = pair.upstream.nextRequest();
    const client = pair.ask();
    await arrived;
    await leaveAndClose(() => leave(client.socket));
    await expectForgotten();
  });
});
