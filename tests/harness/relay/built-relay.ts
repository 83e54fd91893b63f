import { rmSync } from 'node:fs';
import { call } from '../clients/call.ts';
import { startRedis } from '../redis/redis-server.ts';
import { atEndOfFile } from './at-end-of-file.ts';
import { freePort } from './free-port.ts';
import { newFolder, spawnRelay, usersFile } from './process.ts';
import type { StartedRelay } from './relay-in-process.ts';
import { expectNoCanary, OTHER_USER, USER } from './secrets.ts';

const started: StartedRelay[] = [];
// This comes before the `afterAll` of the file itself, which finds them closed.
atEndOfFile(async () => {
  for (const relay of started) await relay.close();
});

/** Starts the built relay as a process of its own, with a Redis of its own. */
export async function startBuilt(environment: Record<string, string>): Promise<StartedRelay> {
  const redis = await startRedis();
  const metricsPort = await freePort();
  const folder = newFolder({ 'users.json': usersFile([USER.name, OTHER_USER.name]) });
  const own = { METRICS_PORT: String(metricsPort), LOG_LEVEL: 'debug' };
  const child = spawnRelay({ folder, environment: { REDIS_URL: redis.url, ...environment, ...own } });
  const port = await child.listening();
  await child.waitFor(/"msg":"redis ready"/);
  const metricsText = async () => (await call(metricsPort, '/metrics')).body;
  async function end(): Promise<void> {
    expectNoCanary(await metricsText());
    child.signal('SIGTERM');
    const { code } = await child.exited;
    rmSync(folder, { recursive: true });
    await redis.stop();
    expectNoCanary(child.stderr());
    if (code !== 0) throw new Error(`the relay has ended with ${code}: ${child.stderr()}`);
  }
  let ending: Promise<void> | undefined;
  const relay: StartedRelay = {
    port,
    get parts(): never {
      throw new Error('The parts of a process of its own cannot be reached.');
    },
    reload: () => child.signal('SIGHUP'),
    printed: child.stdout,
    metricsText,
    close() {
      ending ??= end();
      return ending;
    },
  };
  started.push(relay);
  return relay;
}
