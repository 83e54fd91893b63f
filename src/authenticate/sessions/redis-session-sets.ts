import type { Redis } from '../../storage/redis.ts';
import { ENDED, MARK_MS, SETS_SCRIPT, USER_PREFIX } from './session-script.ts';

/** A session in its sets. */
export interface SessionInSets {
  readonly key: string;
  readonly sets: readonly string[];
  /** When it began, by `now`. */
  readonly startedAt: number;
}

/** The sets of the sessions of a user, and of the provider's session. A call is one round trip, and `end` two. */
export interface SessionSets {
  /** The time by the clock that marks and beginnings of sessions have in common, in whole ms. */
  now(): Promise<number>;
  /** As `now`, but later than each of the marks of these sets, even if the clock has gone back. */
  startTime(sets: readonly string[]): Promise<number>;
  /** Keeps a session in its sets for `livesMs`; returns false if it has ended with all of a set. */
  keep(session: SessionInSets, livesMs: number): Promise<boolean>;
  /** Whether all sessions of one of the sets were ended at `since` or later. */
  endedSince(sets: readonly string[], since: number): Promise<boolean>;
  /** Marks all sessions of a set as ended, and publishes those that are in it; returns their keys. */
  end(set: string): Promise<string[]>;
  /** Takes removed sessions out of their sets. If that fails, they leave later. */
  forget(sessions: readonly Omit<SessionInSets, 'startedAt'>[]): Promise<void>;
}

/** The sets in Redis. The mark of one lasts at least as long as a session can live. */
export function redisSessionSets(redis: Redis, absoluteMs: number): SessionSets {
  const script = redis.script(SETS_SCRIPT);
  const run = (set: string, op: string, ...args: string[]) =>
    script([set], [op, String(absoluteMs), ...args]);
  // With one key for all, one node of a cluster tells the time.
  const now = () => run(USER_PREFIX, 'now') as Promise<number>;
  async function endedAt(set: string): Promise<number> {
    const score = await redis.run((client) => client.zScore(set, ENDED));
    return score === null ? Number.NEGATIVE_INFINITY : score - MARK_MS;
  }

  return {
    now,
    async startTime(sets) {
      const [time, ...ends] = await Promise.all([now(), ...sets.map(endedAt)]);
      return Math.max(time, ...ends.map((at) => at + 1));
    },
    async keep({ key, sets, startedAt }, livesMs) {
      const values = [key, String(Math.max(1, livesMs)), String(startedAt)];
      const kept = await Promise.all(sets.map((set) => run(set, 'keep', ...values)));
      return !kept.includes(0);
    },
    async endedSince(sets, since) {
      const ends = await Promise.all(sets.map(endedAt));
      return ends.some((at) => at >= since);
    },
    async end(set) {
      return (await run(set, 'end', String(await now()))) as string[];
    },
    async forget(sessions) {
      const calls = [...keysBySet(sessions)].map(([set, keys]) => run(set, 'forget', ...keys));
      await Promise.allSettled(calls);
    },
  };
}

function keysBySet(sessions: Parameters<SessionSets['forget']>[0]): Map<string, string[]> {
  const keysOf = new Map<string, string[]>();
  for (const { key, sets } of sessions)
    for (const set of new Set(sets)) keysOf.set(set, [...(keysOf.get(set) ?? []), key]);
  return keysOf;
}
