import { Problem } from '../../errors.ts';
import { extendedIdleLimit, type LiveSession, type SessionLimits } from './session.ts';
import type { SessionState, SessionStore } from './session-store.ts';

/** How often the limits of sessions with open messages are looked at, in ms. */
const TICK_MS = 500;
/** How often a session in use is extended, in ms; an idle limit of less than four times as long asks for more. */
const EXTEND_MS = 60_000;
/** After the store has failed, it is asked again so much later, in ms. */
const RETRY_MS = 1_000;

/** A message that is not answered to its end. */
export interface WatchedMessage {
  /** Its session, which was extended just now. */
  readonly session: LiveSession;
  /** How many bytes of its answer have been carried so far. */
  readonly bytes: () => number;
}

export interface SessionWatch {
  /** Watches over a message, until the function that it returns is called. */
  follow(message: WatchedMessage): () => void;
}

export interface SessionWatchOptions {
  readonly sessions: SessionStore;
  readonly limits: SessionLimits;
  /** Ends the open messages of a session. */
  readonly endMessages: (sessionKey: string, problem: Problem) => void;
}

/** A session with open messages. */
interface Watched {
  /** The messages, each with the bytes that it had carried at the last look. */
  readonly messages: Map<WatchedMessage, number>;
  readonly absoluteExpiresAt: number;
  idleExpiresAt: number;
  extendedAt: number;
  /** Whether anything was carried since then. */
  active: boolean;
  /** Whether its removal may have gone unheard. */
  doubtful: boolean;
  /** When the store may be asked again; infinity while it is asked, and once the session is over. */
  askAt: number;
}

/**
 * Ends the open messages of this instance with their session: when any instance removes it, and when it runs
 * out. What is carried to a client counts as use of the session, and extends it. While the store is out of reach,
 * only the absolute limit ends anything; what was missed meanwhile is asked for once the store is back. A session
 * that the store has lost, without anybody having removed it, keeps its open messages until its idle limit.
 */
export function watchSessions(options: SessionWatchOptions): SessionWatch {
  const { sessions, limits, endMessages } = options;
  const watched = new Map<string, Watched>();
  const extendEveryMs = Math.min(EXTEND_MS, limits.idleMs / 4);
  let timer: NodeJS.Timeout | undefined;

  sessions.listen({
    removed(keys) {
      for (const key of keys) endMessages(key, SIGNED_OUT);
    },
    missed() {
      for (const one of watched.values()) one.doubtful = true;
    },
  });

  function tick(): void {
    const now = Date.now();
    for (const [key, one] of watched) {
      noteActivity(one);
      if (now >= one.absoluteExpiresAt) endMessages(key, RUN_OUT);
      else if (now >= one.askAt && mustAsk(one, now, extendEveryMs)) void ask(key, one, options);
    }
  }

  return {
    follow(message) {
      const { key, idleExpiresAt } = message.session;
      const one = watched.get(key) ?? startWatching(message.session);
      watched.set(key, one);
      one.idleExpiresAt = Math.max(one.idleExpiresAt, idleExpiresAt);
      one.extendedAt = Date.now();
      one.messages.set(message, 0);
      timer ??= setInterval(tick, TICK_MS).unref();
      return () => {
        one.messages.delete(message);
        if (one.messages.size === 0) watched.delete(key);
        if (watched.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    },
  };
}

const SIGNED_OUT = new Problem('session_ended', 'Signed out.');
const RUN_OUT = new Problem('session_ended', 'The session has run out.');

function startWatching({ idleExpiresAt, absoluteExpiresAt }: LiveSession): Watched {
  return {
    messages: new Map(),
    absoluteExpiresAt,
    idleExpiresAt,
    extendedAt: Date.now(),
    active: false,
    doubtful: false,
    askAt: 0,
  };
}

function noteActivity(one: Watched): void {
  for (const [message, seen] of one.messages) {
    const bytes = message.bytes();
    if (bytes > seen) one.active = true;
    one.messages.set(message, bytes);
  }
}

function mustAsk(one: Watched, now: number, everyMs: number): boolean {
  return one.doubtful || now >= one.idleExpiresAt || (one.active && now - one.extendedAt >= everyMs);
}

/** Extends the session if it was in use, and asks whether it still lives in any case. */
async function ask(key: string, one: Watched, options: SessionWatchOptions): Promise<void> {
  const { sessions, limits, endMessages } = options;
  const { active, doubtful } = one;
  Object.assign(one, { active: false, doubtful: false, askAt: Number.POSITIVE_INFINITY });
  let state: SessionState;
  try {
    state = active
      ? await sessions.extend(key, extendedIdleLimit(one, limits, Date.now()))
      : await sessions.state(key);
  } catch {
    // What moved it to ask still stands.
    one.active ||= active;
    one.doubtful ||= doubtful;
    one.askAt = Date.now() + RETRY_MS;
    return;
  }
  const now = Date.now();
  one.extendedAt = now;
  one.askAt = now;
  if (typeof state === 'number') one.idleExpiresAt = state;
  const problem = state === 'removed' ? SIGNED_OUT : RUN_OUT;
  if (state !== 'removed' && now < one.idleExpiresAt) return;
  one.askAt = Number.POSITIVE_INFINITY;
  endMessages(key, problem);
}
