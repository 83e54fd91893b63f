import { randomUUID } from 'node:crypto';
import { carry } from './held-runs.ts';
import type { GoOn } from './joinable-runs.ts';
import type { TakenAnswer } from './run-calls.ts';
import { catchUp, endWith, type Follower } from './run-follower.ts';
import { RUN_LOST } from './run-lost.ts';
import type { SharedState } from './shared-state.ts';

/** Takes over a run whose instance is lost: goes on with it, or ends it for all who read it. Never rejects. */
export async function takeOver(
  state: SharedState,
  follower: Follower,
  goOn: GoOn | undefined,
): Promise<void> {
  const one = state.runsHere.get(follower.id);
  if (!one || one.follower !== follower) return;
  const { id } = follower;
  const { requestId } = one.run;
  const claim = { id, token: randomUUID(), requestId };
  const sentAt = performance.now();
  try {
    const taken = await state.calls.takeOver(id, claim.token);
    if (!taken) return;
    await catchUp(follower, taken.end, state.following);
    if (follower.isOver || follower.at !== taken.end) return;
    const stored = readStored(state, id, taken);
    const { isInside, hasBegun, progress } = follower;
    follower.isOver = true;
    const run = carry(state, one, { claim, name: taken.name, offset: taken.end, sentAt });
    if (stored && goOn && hasBegun && !isInside) {
      state.onMoved(one.run, 'taken_over');
      goOn({ run, ...stored, sinceMs: taken.sinceMs });
    } else {
      state.onMoved(one.run, 'ended');
      if (hasBegun) run.stream.outlet.endEarly(RUN_LOST, isInside);
      Object.assign(progress, { hasLeft: true, mayHaveStarted: true });
      run.over(RUN_LOST);
    }
  } catch {
    // The lease ends, and the next look tries again.
    if (!follower.isOver && performance.now() - sentAt > 60_000) endWith(follower, RUN_LOST);
  }
}

/** What is needed to go on; undefined if it is not there, or not of the end of the log. */
function readStored(
  { codec }: SharedState,
  id: string,
  { end, hold, cursor }: TakenAnswer,
): { readonly hold: unknown; readonly cursor: unknown } | undefined {
  if (hold === '' || cursor === '') return undefined;
  const opened = codec.open(hold, id, 'hold');
  const place = codec.open(cursor, id, 'cursor') as { at: number; cursor: unknown } | undefined;
  return opened !== undefined && place?.at === end ? { hold: opened, cursor: place.cursor } : undefined;
}
