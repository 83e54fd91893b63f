import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type RawClient, rawClient } from '../clients/raw-client.ts';
import { until } from '../clock/until.ts';
import { type FaultProxy, faultProxy } from './fault-proxy.ts';

let server: Server;
let proxy: FaultProxy;
/** The server's end of each connection, and what has come there. */
const ends: { readonly socket: Socket; text: string; isEnded: boolean }[] = [];

beforeEach(async () => {
  ends.length = 0;
  server = createServer({ allowHalfOpen: true }, (socket) => {
    const end = { socket, text: '', isEnded: false };
    ends.push(end);
    socket.on('error', () => {});
    socket.on('end', () => {
      end.isEnded = true;
    });
    socket.on('data', (data) => {
      end.text += data;
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  proxy = await faultProxy(`http://127.0.0.1:${(server.address() as AddressInfo).port}/path`);
});

afterEach(() => {
  proxy.close();
  server.close();
});

/** Opens a connection through the proxy; resolves once `hello` has come to the server. */
async function open({ allowHalfOpen = false } = {}): Promise<RawClient> {
  const before = ends.length;
  const client = rawClient(proxy.port, 'hello', { allowHalfOpen });
  await until(() => ends[before]?.text === 'hello');
  return client;
}

const answer = (text: string) => void ends.at(-1)?.socket.write(text);

test('has the address of its target, but for the host', () => {
  expect(proxy.url).toBe(`http://127.0.0.1:${proxy.port}/path`);
});

test('passes both ways, and the end of each', async () => {
  const client = await open({ allowHalfOpen: true });
  answer('one');
  await client.waitFor('one');
  client.socket.end();
  await until(() => ends[0]?.isEnded === true);
  answer('two');
  ends[0]?.socket.end();
  expect(await client.closed).toEqual({ error: undefined });
  expect(client.text()).toBe('onetwo');
});

test('cuts all connections, and new ones until it is mended', async () => {
  const client = await open();
  proxy.cut();
  await client.closed;
  await rawClient(proxy.port, 'hello').closed;
  expect(ends).toHaveLength(1);
  proxy.mend();
  await open();
});

test('cuts behind so many bytes of an answer', async () => {
  proxy.cutAfter(4);
  const client = await open();
  answer('abc');
  await client.waitFor('abc');
  answer('def');
  await client.closed;
  expect(client.text()).toBe('abcd');
});

test('delays answers', async () => {
  const sent = proxy.record();
  const late = await open();
  proxy.delay(60_000);
  answer('late');
  await until(() => sent.some(({ text }) => text === 'late'));
  proxy.delay(0);
  const client = await open();
  answer('in time');
  await client.waitFor('in time');
  expect(late.text()).toBe('');
});

test.each(['client', 'server'] as const)('holds back what the %s sends, until it is released', async (by) => {
  const client = await open();
  const hold = proxy.hold(by, 'again');
  client.socket.write(' again');
  if (by === 'server') {
    await until(() => ends[0]?.text === 'hello again');
    answer('heard');
  }
  await hold.begun;
  expect(ends[0]?.text).toBe(by === 'client' ? 'hello' : 'hello again');
  expect(client.text()).toBe('');
  hold.release();
  await until(() => ends[0]?.text === 'hello again');
  if (by === 'server') await client.waitFor('heard');
});

test('writes down who has sent what', async () => {
  const sent = proxy.record();
  const client = await open();
  answer('heard');
  await client.waitFor('heard');
  expect(sent).toEqual([
    { by: 'client', text: 'hello' },
    { by: 'server', text: 'heard' },
  ]);
});
