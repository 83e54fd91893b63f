import { usersOf } from '../../../src/authenticate/password/users.ts';
import type { SessionLimits } from '../../../src/authenticate/sessions/session.ts';
import { loadConfig } from '../../../src/config/config.ts';
import { createLogger } from '../../../src/logger.ts';
import { type Instance, startInstance } from '../../../src/process/instance.ts';
import type { RunLeases } from '../../../src/runs/run-store.ts';
import { cheapHash } from './cheap-hash.ts';
import { scanAnswers } from './scan-answers.ts';
import { CANARY, expectNoCanary, LONG_NAMED_USER, OTHER_USER, SECRETS, USER } from './secrets.ts';

/** The parts that tests may use. */
type OpenPart = 'sessions' | 'redis' | 'budgets' | 'streams' | 'open' | 'held' | 'runStore' | 'lifecycle';

/** A relay that was started, in this process or in one of its own. */
export interface StartedRelay extends Pick<Instance, 'reload'> {
  readonly port: number;
  /** For what no port can show or cause. A relay in a process of its own has none. */
  readonly parts: Pick<Instance['parts'], OpenPart>;
  /** All that it has logged so far. */
  readonly printed: () => string;
  /** The metrics as text: in this process those with this name, and none without METRICS_PORT. */
  readonly metricsText: (name?: string) => Promise<string>;
  /** Closes it. Throws if a canary has shown in a metric or, in this process, in an answer. */
  readonly close: () => Promise<void>;
}

/** Limits that no variable sets, or that no variable sets so low. */
export interface TestLimits extends Partial<SessionLimits> {
  /** 20 s if not given, so that a busy machine is not taken for a slow Redis. */
  readonly commandTimeoutMs?: number;
  readonly leases?: Partial<RunLeases>;
}

const passwordHash = cheapHash(CANARY.password);
const HASHES = new Map([USER, OTHER_USER, LONG_NAMED_USER].map(({ name }) => [name, passwordHash]));

/** Starts a whole relay in this process. With Redis, it waits until Redis answers, or for 5 s. */
export async function startInProcess(
  environment: Record<string, string>,
  { commandTimeoutMs = 20_000, leases = {}, ...sessionLimits }: TestLimits,
): Promise<StartedRelay> {
  const loaded = loadConfig(environment);
  const config = {
    ...loaded,
    session: { ...loaded.session, ...sessionLimits },
    redis: loaded.redis && { ...loaded.redis, commandTimeoutMs },
    ...(loaded.metricsPort !== undefined && { metricsPort: 0 }),
  };
  let printed = '';
  const logger = createLogger('debug', {
    write(line: string) {
      printed += line;
    },
  });
  let port = -1;
  const scan = scanAnswers(() => port, SECRETS);
  const instance = await startInstance({
    config,
    logger,
    users: usersOf(() => HASHES, passwordHash),
    pollEveryMs: 50,
    leases,
  });
  port = instance.port;
  const { redis, metrics } = instance.parts;
  await redis?.ready(5_000);
  async function metricsText(name?: string): Promise<string> {
    if (!metrics) return '';
    // A whole scrape asks Redis, which may be away.
    return name === undefined ? metrics.registry.metrics() : metrics.registry.getSingleMetricAsString(name);
  }
  return {
    port,
    parts: instance.parts,
    reload: instance.reload,
    printed: () => printed,
    metricsText,
    async close() {
      await instance.close();
      expectNoCanary(await metricsText());
      scan.end();
    },
  };
}
