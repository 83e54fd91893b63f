import { afterEach, expect, test } from '@jest/globals';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const STREAMS = 900;
/** Less than the listen backlog. */
const AT_A_TIME = 100;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

test('900 streams at once all receive bytes, and none waits for a socket', async () => {
  pair = await startRelayAndUpstream((socket) => void socket.write(STREAM_HEAD), { RATE_LIMIT: '2000' });
  const clients: RawClient[] = [];
  while (clients.length < STREAMS) {
    // Each is a message of its own: the same bytes would join its run.
    for (let n = 0; n < AT_A_TIME; n++)
      clients.push(pair.ask({ body: JSON.stringify({ n: clients.length }) }));
    await until(() => pair.upstream.requests.length === clients.length);
  }
  expect(pair.relay.open.count()).toBe(STREAMS);
  for (const socket of pair.upstream.sockets) socket.write(chunk('data: a\n\n'));
  await Promise.all(clients.map((client) => client.waitFor('data: a\n\n')));
  for (const socket of pair.upstream.sockets) socket.write(LAST_CHUNK);
  await Promise.all(clients.map((client) => client.waitFor(LAST_CHUNK)));
  await until(() => pair.relay.open.count() === 0);
}, 30_000);
