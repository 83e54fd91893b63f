import { call } from '../clients/call.ts';
import { startRedis } from '../redis/redis-server.ts';
import { atEndOfFile } from './at-end-of-file.ts';
import { freePort } from './free-port.ts';
import { freshFolder, type RelayProcess, spawnRelay, usersFile } from './process.ts';
import type { StartedRelay } from './relay-here.ts';
import { OTHER_USER, USER } from './secrets.ts';

const relays: RelayProcess[] = [];
atEndOfFile(() => {
  for (const relay of relays) relay.signal('SIGKILL');
});

/** Starts the built relay as a process of its own, with a Redis of its own. */
export async function startBuilt(environment: Record<string, string>): Promise<StartedRelay> {
  const redis = await startRedis();
  const metricsPort = await freePort();
  const relay = spawnRelay({
    folder: freshFolder({ 'users.json': usersFile([USER.name, OTHER_USER.name]) }),
    environment: {
      ...{ REDIS_URL: redis.url, LOG_LEVEL: 'debug', ...environment },
      METRICS_PORT: String(metricsPort),
    },
  });
  relays.push(relay);
  const port = await relay.listening();
  await relay.waitFor(/"msg":"redis ready"/);
  return {
    port,
    get parts(): never {
      throw new Error('The parts of a process of its own cannot be reached.');
    },
    reload: () => relay.signal('SIGHUP'),
    printed: relay.stdout,
    metricsText: async () => (await call(metricsPort, '/metrics')).body,
    async close() {
      relay.signal('SIGTERM');
      await relay.exited;
      await redis.stop();
    },
  };
}
