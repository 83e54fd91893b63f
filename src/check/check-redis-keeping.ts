import type { Redis } from '../storage/redis.ts';
import type { Report } from './findings.ts';

const CHECK = 'Redis';

export interface KeepingOptions {
  readonly report: Report;
  /** Its address. */
  readonly about: string;
  /** Of a cluster or of Sentinel, a replica takes over from a master that is lost. */
  readonly needsReplicas: boolean;
}

/**
 * Checks that Redis keeps what the relay stores: that it evicts nothing, and that each master has a replica if it should
 * have one.
 */
export async function checkRedisKeeping(
  redis: Redis,
  { report, about, needsReplicas }: KeepingOptions,
): Promise<void> {
  const settings = await settingsOf(redis);
  if (settings === undefined) {
    const says = 'does not tell with INFO whether it evicts';
    const advice = 'Look at its maxmemory-policy, which must be noeviction.';
    return report({ state: 'note', check: CHECK, about, says, advice });
  }
  const { policy, hasReplicas } = settings;
  if (policy !== undefined && policy !== 'noeviction') {
    const says = `may evict what it holds (maxmemory-policy ${policy}): a session that it evicts is signed out, and a message whose name it evicts can run twice`;
    report({ state: 'problem', check: CHECK, about, says, advice: 'Set maxmemory-policy noeviction.' });
  }
  if (needsReplicas && !hasReplicas) {
    const says = 'has a master without a replica: if it is lost, nobody takes its place';
    report({ state: 'note', check: CHECK, about, says, advice: 'Give each master a replica.' });
  }
}

/**
 * What Redis says of itself (the command INFO), of a cluster what its masters say together; undefined if the user of the
 * relay may not ask.
 */
async function settingsOf(redis: Redis) {
  const ask = (section: string) => redis.onEach((server) => server.info(section));
  try {
    const memory = await ask('memory');
    const replication = await ask('replication');
    const policies = memory.map((text) => settingIn(text, 'maxmemory_policy'));
    return {
      policy: policies.find((policy) => policy !== 'noeviction') ?? policies[0],
      hasReplicas: replication.every((text) => settingIn(text, 'connected_slaves') !== '0'),
    };
  } catch {
    return undefined;
  }
}

function settingIn(info: string, name: string): string | undefined {
  return new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
}
