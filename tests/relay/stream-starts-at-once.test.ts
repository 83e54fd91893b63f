import { afterEach, expect, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';

let pair: Pair;
afterEach(() => pair.close());

test('the client has the status and the headers before a byte of the body was sent (S2)', async () => {
  pair = await startPair((socket) => socket.write(STREAM_HEAD));
  const client = pair.ask();
  await client.waitFor('\r\n\r\n');
  expect(client.text()).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(client.text()).toMatch(/\r\nContent-Type: text\/event-stream\r\n/i);
  expect(client.text()).toMatch(/\r\n\r\n$/);
  pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: a\n\n'), Buffer.from(LAST_CHUNK)]));
  await client.waitFor(LAST_CHUNK);
});
