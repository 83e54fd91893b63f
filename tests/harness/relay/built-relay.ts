import { rmSync } from 'node:fs';
import { call } from '../clients/call.ts';
import { startRedis } from '../redis/redis-server.ts';
import { atEndOfFile } from './at-end-of-file.ts';
import { freePort } from './free-port.ts';
import { newFolder, spawnRelay, usersFile } from './process.ts';
import type { StartedRelay } from './relay-in-process.ts';
import { expectNoCanary, OTHER_USER, USER } from './secrets.ts';

const endings: (() => Promise<void>)[] = [];
// This comes before the `afterAll` of the file itself, which finds the relays closed. Their Redis is gone by then.
atEndOfFile(async () => {
  for (const end of endings) await end();
});

/** Starts the built relay as a process of its own, with a Redis of its own unless `environment` has REDIS_URL. */
export async function startBuilt(environment: Record<string, string>): Promise<StartedRelay> {
  const redis = 'REDIS_URL' in environment ? undefined : await startRedis();
  const metricsPort = await freePort();
  const folder = newFolder({ 'users.json': usersFile([USER.name, OTHER_USER.name]) });
  const own = { METRICS_PORT: String(metricsPort), LOG_LEVEL: 'debug' };
  const child = spawnRelay({
    folder,
    environment: { ...environment, ...own, ...(redis && { REDIS_URL: redis.url }) },
  });
  const metricsText = async () => (await call(metricsPort, '/metrics')).body;
  async function end(): Promise<void> {
    const scraped = await metricsText().catch(String);
    child.signal('SIGTERM');
    const { code } = await child.exited;
    rmSync(folder, { recursive: true });
    await redis?.stop();
    expectNoCanary(scraped + child.stderr());
    if (code !== 0) throw new Error(`the relay has ended with ${code}: ${child.stderr()}`);
  }
  let ending: Promise<void> | undefined;
  function close(): Promise<void> {
    ending ??= end();
    return ending;
  }
  endings.push(close);
  const port = await child.listening();
  await child.waitFor(/"msg":"redis ready"/);
  return {
    port,
    get parts(): never {
      throw new Error('The parts of a process of its own cannot be reached.');
    },
    reload: () => child.signal('SIGHUP'),
    printed: child.stdout,
    metricsText,
    close,
  };
}
