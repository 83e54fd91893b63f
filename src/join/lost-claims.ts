import type { Problem } from '../errors.ts';
import type { Batch, Claim, RunCalls } from './run-calls.ts';
import type { RunCodec } from './run-codec.ts';

/** How often Redis is asked again, in ms. */
const AGAIN_MS = 500;
/** For how long, in ms. A message that is sent again before that must not be taken for one that may have run. */
const GIVE_UP_MS = 60_000;
/** How many claims are freed at once, and how many may wait. */
const AT_ONCE = 100;
const MOST = 10_000;

/** Claims whose answer was lost: asks Redis to free them until it has answered. */
export interface LostClaims {
  /** After a failure, Redis may have the claim all the same: then nobody else could send the message. */
  add(claim: Claim, problem: Problem): void;
  close(): void;
}

interface State {
  readonly calls: Pick<RunCalls, 'flush'>;
  /** By when each is given up, by `performance.now()` in ms; the oldest first. */
  readonly waiting: Map<Batch, number>;
  isAsking: boolean;
  timer: NodeJS.Timeout | undefined;
}

/** Makes the list. It has no timer while it is empty. */
export function lostClaims(calls: Pick<RunCalls, 'flush'>, codec: Pick<RunCodec, 'sealEnd'>): LostClaims {
  const state: State = { calls, waiting: new Map(), isAsking: false, timer: undefined };
  return {
    add(claim, problem) {
      if (state.waiting.size >= MOST) return;
      state.waiting.set(batchOf(claim, problem, codec), performance.now() + GIVE_UP_MS);
      void ask(state);
      state.timer ??= setInterval(() => void ask(state), AGAIN_MS).unref();
    },
    close() {
      state.waiting.clear();
      stop(state);
    },
  };
}

/** The token makes it harmless: whoever has got the name meanwhile keeps it. */
function batchOf({ id, token }: Claim, problem: Problem, codec: Pick<RunCodec, 'sealEnd'>): Batch {
  const progress = { hasLeft: false, mayHaveStarted: false };
  const end = { problem, isCut: false, at: 0, isDropped: false, progress, headers: [] };
  return {
    ...{ id, token, end: codec.sealEnd(end, id), state: 'free' },
    ...{ offset: 0, length: 0, isInside: false, data: '', head: '', hold: '', cursor: '' },
  };
}

async function ask(state: State): Promise<void> {
  const { calls, waiting } = state;
  if (state.isAsking) return;
  state.isAsking = true;
  const now = performance.now();
  for (const [batch, until] of waiting) if (until < now) waiting.delete(batch);
  try {
    while (waiting.size > 0) {
      const batches = [...waiting.keys()].slice(0, AT_ONCE);
      await calls.flush(batches);
      for (const batch of batches) waiting.delete(batch);
    }
    stop(state);
  } catch {
    // The timer tries again.
  } finally {
    state.isAsking = false;
  }
}

function stop(state: State): void {
  clearInterval(state.timer);
  state.timer = undefined;
}
