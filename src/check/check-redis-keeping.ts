import type { Config } from '../config/config.ts';
import type { Redis } from '../storage/redis.ts';
import type { Report } from './findings.ts';

const CHECK = 'Redis';
const OWNERS = 'with CHANNELS=owned it holds the owners of the conversations';

/**
 * Checks that Redis keeps what the relay stores: that it evicts nothing, and with `CHANNELS=owned`, whose owners are
 * nowhere else, that it writes to disk. `about` is its address.
 */
export async function checkRedisKeeping(
  redis: Redis,
  { mode }: Pick<Config['channels'], 'mode'>,
  { report, about }: { readonly report: Report; readonly about: string },
): Promise<void> {
  const isOwned = mode === 'owned';
  const settings = await settingsOf(redis);
  if (settings === undefined) {
    const says = 'does not tell with INFO whether it evicts or writes to disk';
    const advice = 'Look at its maxmemory-policy, which must be noeviction, and at appendonly.';
    return report({ state: 'note', check: CHECK, about, says, advice });
  }
  const { policy, writesToDisk } = settings;
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
}

/** What Redis says of itself (the command INFO); undefined if the user of the relay may not ask. */
async function settingsOf(redis: Redis) {
  const ask = (section: string) => redis.run((client) => client.info(section));
  try {
    const text = `${await ask('memory')}\n${await ask('persistence')}`;
    const setting = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1];
    return { policy: setting('maxmemory_policy'), writesToDisk: setting('aof_enabled') === '1' };
  } catch {
    return undefined;
  }
}
