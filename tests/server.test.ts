import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from './harness/clients/call.ts';
import { dechunk } from './harness/clients/raw-client.ts';
import { pass, stopClock } from './harness/clock/stop-clock.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from './harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from './harness/service/raw-upstream.ts';

const GRACE = { SHUTDOWN_GRACE_MS: '60000' };

let pair: RelayAndUpstream;
afterEach(async () => {
  await pair.close();
});

async function openStream(environment: Record<string, string>) {
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), environment);
  const client = pair.ask();
  await client.waitFor('\r\n\r\n');
  pair.upstream.sockets[0]?.write(chunk('data: 1\n\n'));
  await client.waitFor('data: 1');
  return client;
}

describe('shutting down', () => {
  test('lets an open stream end by itself, and is over at once after that', async () => {
    const client = await openStream(GRACE);
    const closing = pair.relay.close();
    await until(() => pair.relay.lifecycle.isDraining());
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
    // The client keeps its connection. If the shutdown waited for it, this test would time out.
    await closing;
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
  });

  test('ends streams with an error event at the end of the grace, and does not wait for kept connections', async () => {
    stopClock();
    const client = await openStream({ SHUTDOWN_GRACE_MS: '100' });
    const closing = pair.relay.close();
    pass(0);
    await until(() => pair.relay.lifecycle.isDraining());
    pass(100);
    // It would wait for a kept connection until a timer ends.
    await closing;
    await client.closed;
    const { body, complete } = dechunk(client.text());
    expect(body).toMatch(/^data: 1\n\nevent: error\ndata: \{.*"code":"answer_lost".*\}\n\n$/);
    expect(complete).toBe(true);
  });

  test('first stops being ready, while it still serves', async () => {
    stopClock();
    pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), { SHUTDOWN_DELAY_MS: '1000' });
    const closing = pair.relay.close();
    pass(999);
    expect(await call(pair.relay.port, '/readyz')).toMatchObject({ status: 503 });
    expect(await call(pair.relay.port, '/auth/session')).toMatchObject({ status: 401 });
    pass(1);
    await closing;
    await expect(call(pair.relay.port, '/healthz')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });
});
