import type { Logger } from '../../logger.ts';
import type { Redis } from '../../storage/redis.ts';
import { redisSessionSets, type SessionInSets, type SessionSets } from './redis-session-sets.ts';
import type { LiveSession } from './session.ts';
import type { SessionCodec } from './session-codec.ts';
import {
  CHANNEL,
  PROVIDER_PREFIX,
  REMOVED,
  SESSION_PREFIX,
  SESSION_SCRIPT,
  setsOf,
  USER_PREFIX,
} from './session-script.ts';
import type { SessionState, SessionStore } from './session-store.ts';

export interface RedisSessionStoreOptions {
  readonly redis: Redis;
  readonly logger: Logger;
  readonly codec: SessionCodec;
  /** How long a session lives at most, in ms. */
  readonly absoluteMs: number;
}

/** How many sessions are removed at once, so that other commands come between. */
const BATCH = 500;

/** What the calls of the store have in common. */
interface StoreCalls extends RedisSessionStoreOptions {
  /** Runs the script of the session with this key: an operation with its arguments. */
  readonly run: (key: string, op: string, ...args: string[]) => Promise<unknown>;
  readonly textOf: (key: string) => Promise<string | null>;
  readonly sessionSets: SessionSets;
  /** The session in its sets. */
  readonly inSets: (session: LiveSession) => SessionInSets;
}

/**
 * Sessions in Redis, shared by all instances. No script has keys of two owners: that of a session changes it alone, and
 * that of a set (`redis-session-sets.ts`) knows the sessions of a user, or of the provider's session. A session is
 * removed and its removal is published in one step, so that neither happens alone; so is the mark that ends all of a set.
 */
export function redisSessionStore(options: RedisSessionStoreOptions): SessionStore {
  const { redis, codec } = options;
  const calls = callsOf(options);
  const { run, textOf, sessionSets, inSets } = calls;
  const decode = decoder(options);
  return {
    now: sessionSets.now,
    startTime: (owner) => sessionSets.startTime(setsOf(owner)),
    async get(key) {
      const text = await textOf(key);
      return text === null || text === REMOVED ? undefined : decode(key, text);
    },
    hasEnded: (session) => hasEnded(calls, session),
    async set(key, session) {
      const ttl = session.idleExpiresAt - Date.now();
      if (ttl <= 0) return false;
      const stored = run(key, 'set', codec.encode(key, session), String(ttl));
      const one = inSets({ ...session, key });
      const [isStored, isKept] = await Promise.all([stored, sessionSets.keep(one, ttl)]);
      if (isStored === 1 && isKept) return true;
      await Promise.all([run(key, 'remove', key), sessionSets.forget([one])]);
      return false;
    },
    extend: (session, idleExpiresAt) => extend(calls, inSets(session), idleExpiresAt),
    async state(session) {
      const [text, isOver] = await Promise.all([textOf(session.key), hasEnded(calls, session)]);
      if (text === REMOVED || isOver) return 'removed';
      return (text !== null && codec.decode(session.key, text)?.idleExpiresAt) || 'missing';
    },
    async remove(key) {
      const text = (await run(key, 'remove', key)) as string | null;
      codec.forget(key);
      if (text !== null) await sessionSets.forget([{ key, sets: codec.setsOf(text) }]);
    },
    removeProviderSession: (providerSession) => removeAll(calls, PROVIDER_PREFIX + providerSession),
    removeUser: (userId) => removeAll(calls, USER_PREFIX + userId),
    removedSince: (owner, since) => sessionSets.endedSince(setsOf(owner), since),
    listen({ removed, missed }) {
      const onMessage = (message: string) => {
        const keys = message.split(' ');
        for (const key of keys) codec.forget(key);
        removed(keys);
      };
      void redis.subscribe(CHANNEL, onMessage, missed);
    },
    close() {},
  };
}

function callsOf(options: RedisSessionStoreOptions): StoreCalls {
  const { redis, absoluteMs } = options;
  const script = redis.script(SESSION_SCRIPT);
  return {
    ...options,
    run: (key, op, ...args) => script([SESSION_PREFIX + key], [op, String(Date.now()), ...args]),
    textOf: (key) => redis.run((client) => client.get(SESSION_PREFIX + key)),
    sessionSets: redisSessionSets(redis, absoluteMs),
    inSets({ key, user, providerSession, startedAt }) {
      return { key, sets: setsOf({ userId: user.id, providerSession }), startedAt };
    },
  };
}

/** Reads the text of a session; the first one that it cannot read is logged. */
function decoder({ codec, logger }: RedisSessionStoreOptions): SessionCodec['decode'] {
  let hasWarned = false;
  return (key, text) => {
    const session = codec.decode(key, text);
    if (session === undefined && !hasWarned) {
      hasWarned = true;
      logger.warn('this relay cannot read a stored session; it counts as none');
    }
    return session;
  };
}

/** Whether a session has ended with all of a set. */
function hasEnded({ sessionSets, inSets }: StoreCalls, session: LiveSession): Promise<boolean> {
  const { sets, startedAt } = inSets(session);
  return sessionSets.endedSince(sets, startedAt);
}

/** Extends a session and asks whether it has ended with all of a set, in one round trip. */
async function extend(
  { run, sessionSets }: StoreCalls,
  session: SessionInSets,
  idleExpiresAt: number,
): Promise<SessionState> {
  const extended = run(session.key, 'extend', String(idleExpiresAt));
  const [state, isKept] = await Promise.all([
    extended,
    sessionSets.keep(session, idleExpiresAt - Date.now()),
  ]);
  if (typeof state !== 'number') await sessionSets.forget([session]);
  if (isKept) return state as SessionState;
  // Its text was extended in the same round trip, and must not outlive the mark.
  await run(session.key, 'remove', session.key);
  return 'removed';
}

async function removeAll({ run, sessionSets, codec }: StoreCalls, set: string): Promise<number> {
  const keys = await sessionSets.end(set);
  let count = 0;
  for (let from = 0; from < keys.length; from += BATCH) {
    const batch = keys.slice(from, from + BATCH);
    const texts = (await Promise.all(batch.map((key) => run(key, 'remove', key)))) as (string | null)[];
    const sets = texts.map((text) => (text === null ? [set] : [set, ...codec.setsOf(text)]));
    await sessionSets.forget(batch.map((key, n) => ({ key, sets: sets[n] ?? [set] })));
    count += texts.filter((text) => text !== null).length;
  }
  return count;
}
