import { Problem } from '../../errors.ts';
import { extendedIdleLimit, type LiveSession, type SessionLimits } from './session.ts';
import type { SessionState, SessionStore } from './session-store.ts';

/** How often the limits of sessions with open messages are checked, in ms. */
const TICK_MS = 500;
/** How often a session in use is extended, in ms; more often if the idle limit is less than four times as long. */
const EXTEND_MS = 60_000;
/** How long after a failure of the store it is asked again, in ms. */
const ASK_AGAIN_MS = 1_000;

/** A message, live stream, operation or run that is not over: all are called messages here. */
export interface WatchedMessage {
  /** Its session, as it was last read or extended. */
  readonly session: LiveSession;
  /** How many bytes of its answer have been carried so far. */
  readonly bytes: () => number;
  /** What `missedRemovals()` of the watch returned before its session was read; by default what it returns now. */
  readonly missedRemovals?: number;
}

export interface SessionWatch {
  /** Watches a message until the returned function is called. */
  add(message: WatchedMessage): () => void;
  /** How often removals may have been missed so far. */
  missedRemovals(): number;
}

export interface SessionWatchOptions {
  readonly sessions: SessionStore;
  readonly limits: SessionLimits;
  /** Ends the open messages of a session. */
  readonly endMessages: (sessionKey: string, problem: Problem) => void;
}

/** A session with open messages. */
interface WatchedSession {
  /** As it was when its first message began. */
  readonly session: LiveSession;
  /** The messages, each with its number of carried bytes at the last tick. */
  readonly messages: Map<WatchedMessage, number>;
  idleExpiresAt: number;
  extendedAt: number;
  /** Whether bytes were carried since it was last extended. */
  active: boolean;
  /** Whether its removal may have been missed. */
  mayBeRemoved: boolean;
  /** When the store may be asked again; infinity while a call is under way, and once the session is over. */
  askAt: number;
}

/**
 * Ends the open messages of this instance when their session ends: when any instance removes it, and when it expires.
 * Bytes that are carried to a client count as use of the session, and extend it. While the store is out of reach, only
 * the absolute limit ends messages; when the store is back, it is asked for removals that were missed. If the store has
 * lost a session, its open messages go on until its idle limit.
 */
export function watchSessions(options: SessionWatchOptions): SessionWatch {
  const { sessions, endMessages } = options;
  const watched = new Map<string, WatchedSession>();
  let timer: NodeJS.Timeout | undefined;
  let missedRemovals = 0;

  /** Ends the timer when it finds no session, and not with the last message, since the next one often comes soon. */
  function check(): void {
    tick(watched, options);
    if (watched.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  sessions.listen({
    removed(keys) {
      for (const key of keys) endMessages(key, SIGNED_OUT);
    },
    missed() {
      missedRemovals++;
      for (const session of watched.values()) session.mayBeRemoved = true;
    },
  });

  return {
    add(message) {
      const { key, idleExpiresAt } = message.session;
      const session = watched.get(key) ?? startWatching(message.session);
      watched.set(key, session);
      lengthen(session, idleExpiresAt);
      if ((message.missedRemovals ?? missedRemovals) < missedRemovals) session.mayBeRemoved = true;
      session.messages.set(message, 0);
      timer ??= setInterval(check, TICK_MS).unref();
      return () => {
        const isLast = session.messages.delete(message) && session.messages.size === 0;
        if (isLast) watched.delete(key);
      };
    },
    missedRemovals: () => missedRemovals,
  };
}

const SIGNED_OUT = new Problem('session_ended', 'Signed out.');
const EXPIRED = new Problem('session_ended', 'The session has expired.');

function startWatching(session: LiveSession): WatchedSession {
  return {
    session,
    messages: new Map(),
    idleExpiresAt: session.idleExpiresAt,
    extendedAt: Date.now(),
    active: false,
    mayBeRemoved: false,
    askAt: 0,
  };
}

/** Ends the messages of sessions that are over, and asks the store where that is not certain. */
function tick(watched: ReadonlyMap<string, WatchedSession>, options: SessionWatchOptions): void {
  const { limits, endMessages } = options;
  const extendEveryMs = Math.min(EXTEND_MS, limits.idleMs / 4);
  const now = Date.now();
  for (const [key, session] of watched) {
    noteActivity(session);
    if (now >= session.session.absoluteExpiresAt) endMessages(key, EXPIRED);
    else if (now >= session.askAt && mustAsk(session, now, extendEveryMs)) void ask(key, session, options);
  }
}

/** Takes over a later idle limit, which a message that has just begun has set. */
function lengthen(session: WatchedSession, idleExpiresAt: number): void {
  if (idleExpiresAt > session.idleExpiresAt)
    Object.assign(session, { idleExpiresAt, extendedAt: Date.now() });
}

function noteActivity(session: WatchedSession): void {
  for (const [message, seen] of session.messages) {
    const bytes = message.bytes();
    if (bytes > seen) session.active = true;
    session.messages.set(message, bytes);
  }
}

function mustAsk(session: WatchedSession, now: number, everyMs: number): boolean {
  return (
    session.mayBeRemoved ||
    now >= session.idleExpiresAt ||
    (session.active && now - session.extendedAt >= everyMs)
  );
}

/** Extends the session if it was in use, else asks for its state; ends its messages if it is over. */
async function ask(key: string, session: WatchedSession, options: SessionWatchOptions): Promise<void> {
  const { sessions, limits, endMessages } = options;
  const { active, mayBeRemoved } = session;
  Object.assign(session, { active: false, mayBeRemoved: false, askAt: Number.POSITIVE_INFINITY });
  let state: SessionState;
  try {
    state = active
      ? await sessions.extend(session.session, extendedIdleLimit(session.session, limits, Date.now()))
      : await sessions.state(session.session);
  } catch {
    // The store was not asked: the reasons to ask it remain.
    session.active ||= active;
    session.mayBeRemoved ||= mayBeRemoved;
    session.askAt = Date.now() + ASK_AGAIN_MS;
    return;
  }
  const now = Date.now();
  session.extendedAt = now;
  session.askAt = now;
  if (typeof state === 'number') {
    // The clock of this instance is fast: by it the limit has passed, but the session lives on.
    if (now >= state) session.askAt = now + ASK_AGAIN_MS;
    session.idleExpiresAt = state;
    return;
  }
  const problem = state === 'removed' ? SIGNED_OUT : EXPIRED;
  if (state === 'missing' && now < session.idleExpiresAt) return;
  session.askAt = Number.POSITIVE_INFINITY;
  endMessages(key, problem);
}
