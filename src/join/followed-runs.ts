import { setTimeout as sleep } from 'node:timers/promises';
import { Problem } from '../errors.ts';
import type { JoinEntry } from './joinable-runs.ts';
import { LEASE_MS, type RunInRedis } from './run-calls.ts';
import { endWith, follower, look, openStream, RUN_DROPPED, stay } from './run-follower.ts';
import { startOfLog } from './run-log.ts';
import { RUN_LOST } from './run-lost.ts';
import { type FoundRun, notKept, over, placeIn } from './runs.ts';
import { addRun, closeUnread, type LocalRun, type SharedState } from './shared-state.ts';

/** How often followed runs are looked at, whatever is published, in ms. */
const LOG_LOOK_MS = 1_000;
/** An event that a reader has got is in the log at the latest when another instance has taken the run over, in ms. */
const AHEAD_MS = LEASE_MS + 1_000;
/** If the beginning of the log is gone, the event may be, too, in ms. */
const LATE_MS = 1_000;
/** An event is looked for after this time, and then each time after twice as long, up to this, in ms. */
const POLL_MS = { least: 50, most: 800 };

/** Joins the run that a name or a message id leads to; undefined if the service must be asked for the rest. */
export async function joinFoundRun<T>(
  state: SharedState,
  inRedis: RunInRedis,
  { lastEventId, signal, join }: JoinEntry<T>,
): Promise<T | undefined> {
  await state.claims.get(inRedis.id);
  const isWhole = lastEventId === undefined;
  const isOver = inRedis.state === 'over' || inRedis.state === 'unknown';
  if (isOver || (inRedis.state === 'broken' && !isWhole)) {
    if (isWhole) throw over();
    return undefined;
  }
  const one = state.runsHere.get(inRedis.id) ?? (inRedis.first < 0 ? undefined : followRun(state, inRedis));
  // The store will know of it soon.
  if (isWhole && one?.run.isGivenUp()) throw RUN_DROPPED;
  if (one) one.joining++;
  try {
    const found = one && (await place(state, one, { lastEventId, signal }));
    if (found) return join({ ...found, state: inRedis.state === 'live' ? 'live' : 'ended' });
  } finally {
    if (one) dropUnread(state, one);
  }
  if (isWhole) throw inRedis.state === 'live' ? notKept() : over();
  return undefined;
}

/** Where a client can begin. An event that is not there yet is waited for. */
async function place(
  state: SharedState,
  one: LocalRun,
  { lastEventId, signal }: Pick<JoinEntry<unknown>, 'lastEventId' | 'signal'>,
): Promise<FoundRun | undefined> {
  const { run } = one;
  const since = performance.now();
  let searched = -1;
  for (let pollMs = POLL_MS.least; ; pollMs = Math.min(pollMs * 2, POLL_MS.most)) {
    if (run.isGivenUp()) return undefined;
    const end = run.log.end;
    // A search costs as much as the log is long: it waits until there is more.
    const found = end > searched ? placeIn(run, lastEventId) : undefined;
    searched = end;
    const waitMs = lastEventId === undefined ? 0 : startOfLog(run.log) === 0 ? AHEAD_MS : LATE_MS;
    const isLate = performance.now() - since >= waitMs;
    if (found || !one.follower || run.isOver() || isLate) return found;
    void look(one.follower, state.following);
    await sleep(pollMs);
    signal?.throwIfAborted();
  }
}

function followRun(state: SharedState, { id, first, requestId }: RunInRedis): LocalRun {
  const progress = { hasLeft: true, mayHaveStarted: true };
  const one = addRun(state, id, { requestId, progress, from: first });
  follow(state, one, { at: first, hasBegun: false });
  return one;
}

/** Reads a run from its log from now on. */
export function follow(state: SharedState, one: LocalRun, from: Parameters<typeof follower>[2]): void {
  const { run, id } = one;
  const own = follower(id, run, from);
  one.follower = own;
  const { signal } = run.stop;
  signal.addEventListener('abort', () => {
    if (one.follower !== own) return;
    // Nobody reads it here any more, or the session of the last one has ended.
    if (signal.reason instanceof Problem) {
      // The one who carries it must not wait for somebody to come back.
      if (signal.reason.code === 'session_ended') state.calls.sessionEnded(id).catch(() => {});
      endWith(own, signal.reason);
    } else {
      own.isOver = true;
      run.over(signal.reason);
    }
  });
  if (from.hasBegun) openStream(own, state.following);
  void look(own, state.following);
  state.logTimer ??= setInterval(() => lookAtAll(state), LOG_LOOK_MS);
}

function lookAtAll(state: SharedState): void {
  const followed = [...state.runsHere.values()].filter((one) => one.follower);
  for (const one of followed) {
    if (one.follower?.isFull) void stay(one.follower, state.following);
    else lookAt(state, one);
  }
  if (followed.length > 0) return;
  clearInterval(state.logTimer);
  state.logTimer = undefined;
}

/** Something may have come of a run. */
export function lookAt(state: SharedState, one: LocalRun | undefined): void {
  if (one?.follower && !one.follower.isFull) void look(one.follower, state.following);
}

/** One who looked for a place has taken it, or has not found it. */
function dropUnread(state: SharedState, one: LocalRun): void {
  const { run, id, follower: own } = one;
  one.joining--;
  closeUnread(one);
  if (one.joining > 0 || run.isOver()) return;
  dropTaken(one);
  if (!own || run.clients() > 0) return;
  own.isOver = true;
  state.runsHere.delete(id);
  run.over(notKept());
}

/** A run that was taken over for one who has not joined it has no session that can end it. */
function dropTaken({ run, held }: LocalRun): void {
  if (!held || run.isAlone() || run.stop.signal.aborted) return;
  const { others } = held;
  if (run.clients() > (others.areThere() ? 1 : 0)) return;
  // Redis may take it as read elsewhere, since this instance has looked at it.
  others.endUnread(RUN_LOST);
  run.refused();
}
