import { releaseWaiting } from './first-id.ts';
import { follow } from './followed-runs.ts';
import { closeLog, type HeldRun, heldRun } from './held-run.ts';
import type { RunEntry } from './joinable-runs.ts';
import { publishedRun } from './published-run.ts';
import { remoteReaders } from './remote-readers.ts';
import type { Run } from './run.ts';
import type { BatchAnswer, Claim, RunInRedis } from './run-calls.ts';
import { endWith, follower } from './run-follower.ts';
import { RUN_LOST } from './run-lost.ts';
import type { RunName } from './run-name.ts';
import { addRun, type LocalRun, type SharedState } from './shared-state.ts';

/** What this instance may carry from now on. */
export interface Hold {
  readonly claim: Claim;
  readonly name: RunName;
  /** The offset of what is not stored yet. */
  readonly offset: number;
  /** When Redis was asked for it, by `performance.now()` in ms. */
  readonly sentAt: number;
}

/** Begins the run of a name that was claimed. */
export function beginRun<T>(
  state: SharedState,
  hold: Omit<Hold, 'offset'>,
  { requestId, progress, begin }: RunEntry<T>,
): T {
  const one = addRun(state, hold.claim.id, { requestId, progress, from: 0 });
  const run = carry(state, one, { ...hold, offset: 0 });
  try {
    return begin(run);
  } catch (error) {
    // Its client has left meanwhile.
    one.run.stop.abort(error);
    run.over(error);
    throw error;
  }
}

/** Lets this instance carry a run. Returns the run for the one who writes its stream. */
export function carry(state: SharedState, one: LocalRun, { claim, ...from }: Hold): Run {
  const { flush, maxBytes, budget } = state;
  const held = heldRun(claim, one.run, { ...from, budget });
  const published = publishedRun(held, { flush, maxBytes, isKept: from.name.isKept });
  one.follower = undefined;
  one.held = { held, published, others: remoteReaders(one.run, maxBytes) };
  flush.add(held);
  return published.run;
}

/** What Redis has answered to what was stored of a run. */
export function onAnswer(state: SharedState, held: HeldRun, [status, followed, seen]: BatchAnswer): void {
  const one = state.runsHere.get(held.id);
  if (status === 'gone') void restore(state, held);
  else if (status === 'lost') lose(state, held);
  else if (one?.held) {
    const { others } = one.held;
    held.isFollowed = followed > 0;
    others.update(followed, seen);
    held.isAsking = others.areBehind();
    if (held.isAsking) state.flush.flushSoon();
  }
}

/** Another instance has taken the run: what carries it here ends, and its clients read on in the log. */
function lose(state: SharedState, held: HeldRun): void {
  const one = state.runsHere.get(held.id);
  const isOpen = held.log === 'open';
  // The other one ends the stream.
  releaseWaiting(held, { withEnd: false });
  state.flush.remove(held);
  if (one?.held?.held !== held) return;
  const { published, others } = one.held;
  const ahead = Buffer.concat([...held.sent, ...held.pending].map(({ bytes }) => bytes));
  const { hasBegun, isInside } = held;
  one.held = undefined;
  published.detach();
  state.onMoved(one.run, 'lost');
  const from = { at: one.run.log.end, ahead, hasBegun, isInside };
  // What was written since its log was closed cannot be compared.
  if (isOpen) follow(state, one, from);
  else endWith(follower(one.id, one.run, from), RUN_LOST);
  others.update(0, 0);
}

/** Redis has lost its data: the name is claimed again, so that nobody sends the message once more. */
async function restore(state: SharedState, held: HeldRun): Promise<void> {
  closeLog(held);
  const inRedis = await claimAgain(state, held).catch(() => undefined);
  if (!inRedis || inRedis.state === 'claimed' || inRedis.state === 'forgotten') return;
  if (inRedis.id === held.id && inRedis.state === 'live') return;
  held.isLostByRedis = true;
  state.flush.remove(held);
}

/** Claims the name of a run that is carried here. If Redis has lost the run, nothing more of its stream is stored. */
export async function claimAgain(state: SharedState, held: HeldRun): Promise<RunInRedis> {
  const { id, token, requestId, name } = held;
  const inRedis = await state.calls.enter(name, { id, token, requestId });
  if (inRedis.state === 'claimed') {
    // Its log would have a gap.
    closeLog(held);
    state.flush.flushSoon();
  }
  return inRedis;
}
