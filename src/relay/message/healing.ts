import { setTimeout as sleep } from 'node:timers/promises';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { ResumptionOutcome } from '../upstream/relay-observer.ts';
import type { BreakCause } from './break-causes.ts';
import type { GatePass, HealingGate } from './healing-gate.ts';
import { type AttemptOptions, attemptResumption } from './resumption-attempt.ts';
import type { ResumePoint } from './stream-cursor.ts';

const MAX_ATTEMPTS_PER_ID = 5;
const MAX_ATTEMPTS = 50;
/** Pauses before attempts, in ms: each is twice as long as the one before, up to the longest. */
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4_000;
/** No pause is shorter, whatever the service's `retry:` says. */
const LEAST_PAUSE_MS = 100;
/** A `retry:` of the service replaces the first pause, and no pause is shorter; a longer one than this counts as this. */
const MAX_RETRY_MS = 10_000;

export interface HealerOptions extends AttemptOptions {
  /** `namespace/bot`. */
  readonly bot: string;
  readonly gate: HealingGate;
  /** Called once for each attempt, which are counted from 1; `cause` is an error code or a status. */
  readonly observe: (outcome: ResumptionOutcome, attempt: number, cause?: string) => void;
  /** Returns a number from 0 to 1, which lengthens a pause by up to a half. */
  readonly random?: () => number;
  /** The shortest pause, in ms; by default 100. */
  readonly leastPauseMs?: number;
}

/** Resumes one message's stream whenever it breaks. */
export interface Healer {
  /**
   * Sends the message with `Last-Event-ID` until the service goes on with the stream. Resolves with the answer, or with
   * undefined if the stream can't be resumed. Rejects with nothing but the signal's reason.
   */
  resume(point: ResumePoint, signal: AbortSignal): Promise<UpstreamAnswer | undefined>;
  /** The first events of the resumed stream have shown that it is of the same run, or of a new one. */
  firstEvent(verdict: 'same_run' | 'new_run'): void;
  /** What became of the resumed stream. Only the first call after each `resume` counts. */
  recordOutcome(outcome: 'resumed' | 'ended_early' | 'given_up', cause?: BreakCause): void;
  /** Whether no stream of this bot may be resumed any more. */
  isForbidden(): boolean;
}

interface HealerState {
  readonly options: HealerOptions;
  /** The id of the last resumption, and the attempts with it. */
  lastEventId: string | undefined;
  attemptsOfId: number;
  attempts: number;
  pass: GatePass | undefined;
  /** Whether the outcome of the last attempt is not known yet. */
  isOpen: boolean;
}

/** Makes at most five attempts without a new id, and fifty in all. */
export function healer(options: HealerOptions): Healer {
  const { gate, bot } = options;
  const state: HealerState = {
    ...{ options, lastEventId: undefined, attemptsOfId: 0, attempts: 0 },
    ...{ pass: undefined, isOpen: false },
  };
  return {
    resume: (point, signal) => resume(state, point, signal),
    firstEvent(verdict) {
      if (verdict === 'same_run') gate.proven(bot);
      else {
        gate.forbid(bot);
        recordOutcome(state, 'new_run');
      }
      state.pass?.leave();
    },
    recordOutcome(outcome, cause) {
      recordOutcome(state, outcome, cause);
      state.pass?.leave();
    },
    isForbidden: () => !gate.mayHeal(bot),
  };
}

function recordOutcome(state: HealerState, outcome: ResumptionOutcome, cause?: string): void {
  if (!state.isOpen) return;
  state.isOpen = false;
  state.options.observe(outcome, state.attempts, cause);
}

async function resume(
  state: HealerState,
  point: ResumePoint,
  signal: AbortSignal,
): Promise<UpstreamAnswer | undefined> {
  const { gate, bot } = state.options;
  if (point.lastEventId !== state.lastEventId) state.attemptsOfId = 0;
  state.lastEventId = point.lastEventId;
  let askedMs = 0;
  while (mayTry(state)) {
    const { options, attemptsOfId: attempts } = state;
    const waitMs = Math.max(askedMs, pauseMs({ ...options, attempts, retryMs: point.retryMs }));
    await sleep(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted());
    state.pass = await gate.enter(bot, signal);
    // Another stream may have got a new run meanwhile.
    if (!gate.mayHeal(bot)) return undefined;
    const result = await attempt(state, point.lastEventId, signal);
    if ('answer' in result) return result.answer;
    recordOutcome(state, result.outcome, result.cause);
    if (result.isFinal) return undefined;
    askedMs = result.askedMs ?? 0;
  }
  return undefined;
}

/** One attempt. If there is an answer, its outcome stays open, and so does the pass of the gate. */
async function attempt(state: HealerState, lastEventId: string, signal: AbortSignal) {
  const { options, pass } = state;
  let isKept = false;
  try {
    const onSent = () => pass?.sent();
    state.attempts++;
    state.attemptsOfId++;
    state.isOpen = true;
    const result = await attemptResumption(options, { lastEventId, onSent, signal });
    isKept = 'answer' in result;
    return result;
  } finally {
    if (!isKept) pass?.leave();
    if (signal.aborted && !isKept) recordOutcome(state, 'given_up');
  }
}

function mayTry({ options, attempts, attemptsOfId }: HealerState): boolean {
  const { gate, bot } = options;
  return attempts < MAX_ATTEMPTS && attemptsOfId < MAX_ATTEMPTS_PER_ID && gate.mayHeal(bot);
}

export interface Pause extends Pick<HealerOptions, 'random' | 'leastPauseMs'> {
  /** How many attempts there were with the same id. */
  readonly attempts: number;
  readonly retryMs: number | undefined;
}

/** The pause before the next attempt, in ms. */
export function pauseMs(pause: Pause): number {
  const { attempts, retryMs, random = Math.random, leastPauseMs = LEAST_PAUSE_MS } = pause;
  const first = retryMs === undefined ? FIRST_PAUSE_MS : Math.min(retryMs, MAX_RETRY_MS);
  const doubled = Math.min(first * 2 ** attempts, LONGEST_PAUSE_MS);
  return Math.max(leastPauseMs, first, doubled) * (1 + random() / 2);
}
