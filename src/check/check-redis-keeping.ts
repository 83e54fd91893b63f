import type { Config } from '../config/config.ts';
import type { Redis } from '../storage/redis.ts';
import type { Report } from './findings.ts';

const CHECK = 'Redis';
const OWNERS = 'with CHANNELS=owned it holds the owners of the conversations';

export interface KeepingOptions {
  readonly report: Report;
  /** Its address. */
  readonly about: string;
  /** Of a cluster or of Sentinel, a replica takes over from a master that is lost. */
  readonly needsReplicas: boolean;
}

/**
 * Checks that Redis keeps what the relay stores: that it evicts nothing, and with `CHANNELS=owned`, whose owners are
 * nowhere else, that it writes to disk; and that each master has a replica if it should have one.
 */
export async function checkRedisKeeping(
  redis: Redis,
  { mode }: Pick<Config['channels'], 'mode'>,
  { report, about, needsReplicas }: KeepingOptions,
): Promise<void> {
  const isOwned = mode === 'owned';
  const settings = await settingsOf(redis);
  if (settings === undefined) {
    const says = 'does not tell with INFO whether it evicts or writes to disk';
    const advice = 'Look at its maxmemory-policy, which must be noeviction, and at appendonly.';
    return report({ state: 'note', check: CHECK, about, says, advice });
  }
  const { policy, writesToDisk, hasReplicas } = settings;
  if (policy !== undefined && policy !== 'noeviction') {
    // Owners do not expire, so that a volatile policy spares them.
    const evictsOwners = isOwned && policy.startsWith('allkeys-');
    const loss = evictsOwners ? OWNERS : 'a session that it evicts is signed out';
    const says = `may evict what it holds (maxmemory-policy ${policy}): ${loss}`;
    const state = evictsOwners ? 'problem' : 'note';
    report({ state, check: CHECK, about, says, advice: 'Set maxmemory-policy noeviction.' });
  }
  if (isOwned && !writesToDisk) {
    const says = `does not write each change to disk (appendonly no): ${OWNERS}`;
    const advice = 'Set appendonly yes, unless its data are kept in another way.';
    report({ state: 'note', check: CHECK, about, says, advice });
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
    const [memory, persistence, replication] = [
      await ask('memory'),
      await ask('persistence'),
      await ask('replication'),
    ];
    const policies = memory.map((text) => settingIn(text, 'maxmemory_policy'));
    return {
      policy: policies.find((policy) => policy !== 'noeviction') ?? policies[0],
      writesToDisk: persistence.every((text) => settingIn(text, 'aof_enabled') === '1'),
      hasReplicas: replication.every((text) => settingIn(text, 'connected_slaves') !== '0'),
    };
  } catch {
    return undefined;
  }
}

function settingIn(info: string, name: string): string | undefined {
  return new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
}
