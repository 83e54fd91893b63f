import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, expect } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { inFrontOf, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { residentBytes, testWithProc, watchResident } from '../harness/relay/resident-memory.ts';

const MB = 2 ** 20;
/** `FLOOD_MB=200` measures as much as the documents promise for. */
const FLOOD_MB = process.env.FLOOD_MB ?? '50';
const CONNECTIONS = 50;
const FLOOD = fileURLToPath(new URL('../harness/relay/pipelined-flood.ts', import.meta.url));

afterEach(() => stopProcesses());

testWithProc(
  'endless requests on connections that read nothing cost little memory, and other clients are served meanwhile',
  async () => {
    const metricsPort = await freePort();
    const relay = startProcess({
      environment: {
        ...inFrontOf('http://127.0.0.1:9'),
        AUTH_MODE: 'guest',
        METRICS_PORT: String(metricsPort),
        CLIENT_LIMIT_PER_ADDRESS: '0',
      },
      // If the relay kept the requests, it would reach this limit, not that of the machine.
      nodeArgs: ['--max-old-space-size=512'],
    });
    const port = await relay.listening();
    // Code that is loaded for the first requests must not count.
    for (let count = 0; count < 40; count++)
      await Promise.all(Array.from({ length: CONNECTIONS }, () => call(port, '/auth/session')));

    const before = residentBytes(relay.pid);
    const most = watchResident(relay.pid);
    let flooding = true;
    const flood = promisify(execFile)(process.execPath, [FLOOD, String(port), String(CONNECTIONS), FLOOD_MB]);
    const flooded = flood.finally(() => {
      flooding = false;
    });
    const servedAfterMs: number[] = [];
    while (flooding) {
      const askedAt = performance.now();
      expect((await call(port, '/auth/session')).status).toBe(200);
      servedAfterMs.push(Math.round(performance.now() - askedAt));
    }
    await flooded;

    const grown = most() - before;
    const others = `${servedAfterMs.length} others served, the slowest after ${Math.max(...servedAfterMs)} ms`;
    if (process.env.FLOOD_MB) console.info(`${FLOOD_MB} MB: ${(grown / MB).toFixed(1)} MiB more; ${others}`);
    expect(grown).toBeLessThan(32 * MB);
    expect(servedAfterMs.length).toBeGreaterThan(5);
    const metrics = (await call(metricsPort, '/metrics')).body;
    expect(total(metrics, 'bot_relay_connections_cut_total')).toBeGreaterThan(0);
    expect(relay.stdout()).toContain('"msg":"too many requests at once on a connection"');
  },
  60_000,
);
