import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { total } from '../harness/relay/metric-samples.ts';
import {
  freshFolder,
  inFrontOf,
  type ProcessOptions,
  signInAt,
  startProcess,
  stopProcesses,
} from '../harness/relay/process.ts';
import { expectNoCanary, MESSAGE, USER } from '../harness/relay/relay.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const users = JSON.stringify({ users: [{ name: USER.name, hash: cheapHash(USER.password) }] });

let upstream: RawUpstream;
afterEach(async () => {
  await stopProcesses();
  await upstream?.close();
});

async function options(metricsPort: number): Promise<ProcessOptions> {
  upstream = await startRawUpstream((socket) =>
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])),
  );
  return {
    folder: freshFolder({ 'users.json': users }),
    environment: {
      ...inFrontOf(upstream.url),
      METRICS_PORT: String(metricsPort),
    },
  };
}

describe('METRICS_PORT', () => {
  test('serves the metrics until the process ends, also while it drains', async () => {
    const metricsPort = await freePort();
    const relay = startProcess(await options(metricsPort));
    const port = await relay.listening();
    const scrape = async () => (await call(metricsPort, '/metrics')).body;
    expect(total(await scrape(), 'bot_relay_ready', { check: 'accepting' })).toBe(1);
    const cookie = await signInAt(port, USER.name, USER.password);
    const client = rawClient(port, rawMessage({ cookie, body: MESSAGE }));
    await client.waitFor('data: 1\n\n');
    const streaming = await scrape();
    expect(total(streaming, 'bot_relay_open_streams')).toBe(1);
    expect(total(streaming, 'bot_relay_session_operations_total', { outcome: 'ok' })).toBeGreaterThan(1);
    expect(total(streaming, 'process_resident_memory_bytes')).toBeGreaterThan(10_000_000);
    expect(total(streaming, 'bot_relay_upstream_responses_total', { outcome: '2xx' })).toBe(1);
    expect((await call(port, '/metrics')).status).toBe(404);

    relay.signal('SIGTERM');
    await relay.waitFor(/"msg":"shutting down"/);
    const draining = await scrape();
    expect(total(draining, 'bot_relay_ready')).toBe(0);
    expect(total(draining, 'bot_relay_open_streams')).toBe(1);
    for (const socket of upstream.sockets) socket.write(LAST_CHUNK);
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    expectNoCanary(streaming + draining);
    expect(relay.stdout()).not.toContain('/metrics');
    client.socket.destroy();
  });
});
