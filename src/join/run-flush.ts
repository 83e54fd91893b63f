import { releaseWaiting } from './first-id.ts';
import { answered, batchOf, closeLog, type HeldRun, hasNews, isDue, stopStoring } from './held-run.ts';
import type { Batch, BatchAnswer, RunCalls } from './run-calls.ts';
import type { RunCodec } from './run-codec.ts';
import type { MessageName, RunName } from './run-name.ts';

/** What has come is stored after this time, with what has come since, in ms. */
const FLUSH_MS = 50;
/** How often the loop looks for leases to extend, and with them for what nobody waits for, in ms. */
const LEASE_LOOK_MS = 250;
/** How long to try to store the end of a run, in ms. */
const END_MS = 60_000;
/** How many runs, and about how many bytes of them, are stored by one call of a script: Redis does nothing else meanwhile. */
const RUNS_AT_ONCE = 100;
const BYTES_AT_ONCE = 1 << 20;

/** Stores the streams of the runs that this instance carries, those of all runs in one flight. */
export interface RunFlush {
  add(held: HeldRun): void;
  /** Nothing more is stored of it. May be called again. */
  remove(held: HeldRun): void;
  /** The newest run of this name of which something may be stored. */
  find(name: RunName): HeldRun | undefined;
  /** The runs of a message id of which something may be stored, the newest last. Takes time for each run that is here. */
  ofMessage(name: MessageName): readonly HeldRun[];
  /** Something has come that shall not wait for the lease. */
  flushSoon(): void;
  /** Stores what has come of this run, and what still comes in this turn of the event loop. */
  flushInThisTurn(held: HeldRun): void;
  /** Stores all that has come, of all runs. Resolves with whether this succeeded. */
  flushNow(): Promise<boolean>;
  close(): Promise<void>;
}

export interface RunFlushOptions {
  readonly calls: Pick<RunCalls, 'flush' | 'partOf'>;
  readonly codec: RunCodec;
  /** How many bytes of a run are kept. */
  readonly maxBytes: number;
  /** Called with each answer, unless it is the last one of its run. */
  readonly onAnswer: (held: HeldRun, answer: BatchAnswer) => void;
  /** Others can go on with a run that `isHandedOver`; `lost` if one of them has taken it before. */
  readonly onHandedOver: (held: HeldRun, outcome: 'handed_over' | 'lost') => void;
}

interface State extends RunFlushOptions {
  /** Each with when its end could first not be stored, by `performance.now()` in ms; infinity before that. */
  readonly held: Map<HeldRun, number>;
  /** The newest run of each name, by the key of the name. */
  readonly named: Map<string, HeldRun>;
  timer: NodeJS.Timeout | undefined;
  immediate: NodeJS.Immediate | undefined;
  /** Those that do not wait for the timer. */
  readonly urgent: Set<HeldRun>;
  leaseTimer: NodeJS.Timeout | undefined;
  flight: Promise<boolean> | undefined;
}

/** Makes the loop. It has no timer while there is no run. */
export function runFlush(options: RunFlushOptions): RunFlush {
  const state: State = {
    ...{ ...options, held: new Map(), named: new Map(), urgent: new Set() },
    ...{ timer: undefined, immediate: undefined, leaseTimer: undefined, flight: undefined },
  };
  const remove = (held: HeldRun) => removeFrom(state, held);
  return {
    add(held) {
      state.held.set(held, Number.POSITIVE_INFINITY);
      state.named.set(held.name.key, held);
      state.leaseTimer ??= setInterval(() => void flushNow(state, isDue), LEASE_LOOK_MS);
    },
    remove,
    find: ({ key }) => state.named.get(key),
    ofMessage: ({ message }) => [...state.held.keys()].filter(({ name }) => name.message === message),
    flushSoon: () => flushSoon(state, FLUSH_MS),
    flushInThisTurn(held) {
      if (!state.held.has(held)) return;
      state.urgent.add(held);
      state.immediate ??= setImmediate(() => {
        state.immediate = undefined;
        void flushNow(state, hasNewsOrIsDue, state.urgent);
      });
    },
    flushNow: () => flushNow(state),
    async close() {
      // What has come during a flight is stored by the next one.
      for (let n = 0; n < 3 && state.held.size > 0; n++) await flushNow(state);
      for (const held of state.held.keys()) remove(held);
    },
  };
}

function removeFrom(state: State, held: HeldRun): void {
  state.held.delete(held);
  state.urgent.delete(held);
  stopStoring(held);
  state.codec.forget(held.id);
  if (state.named.get(held.name.key) === held) state.named.delete(held.name.key);
  if (state.held.size > 0) return;
  clearInterval(state.leaseTimer);
  clearTimeout(state.timer);
  clearImmediate(state.immediate);
  state.immediate = undefined;
  state.leaseTimer = undefined;
  state.timer = undefined;
}

function flushSoon(state: State, ms: number): void {
  state.timer ??= setTimeout(() => {
    state.timer = undefined;
    void flushNow(state, isDue);
  }, ms);
}

type IsWanted = typeof isDue;
const hasNewsOrIsDue: IsWanted = (held, now) => hasNews(held) || isDue(held, now);

/** One flight at a time, so that batches arrive in their order. Calls during a flight wait for the next one. */
async function flushNow(
  state: State,
  isWanted: IsWanted = hasNewsOrIsDue,
  all: Iterable<HeldRun> = state.held.keys(),
): Promise<boolean> {
  while (state.flight) await state.flight;
  state.flight = flush(state, isWanted, [...all]);
  return state.flight;
}

async function flush(state: State, isWanted: IsWanted, all: readonly HeldRun[]): Promise<boolean> {
  try {
    const sentAt = performance.now();
    const due = all.filter((held) => isWanted(held, sentAt));
    for (const held of all) state.urgent.delete(held);
    const news = due.map((held) => ({ held, batch: batchOf(held, state.codec, state.maxBytes) }));
    // One call for each part of Redis: one that fails is not in the way of the others.
    const byPart = Map.groupBy(news, ({ batch }) => state.calls.partOf(batch.id));
    const calls = [...byPart.values()].flatMap(callsOf);
    // What did not fit into a batch follows at once. What comes during the flight has a timer of its own.
    const hasMore = due.some(({ pending }) => pending.length > 0);
    const stored = await Promise.all(calls.map((some) => store(state, some, sentAt)));
    const isDone = stored.every(Boolean);
    if (isDone && hasMore) flushSoon(state, 1);
    return isDone;
  } finally {
    state.flight = undefined;
  }
}

interface Due {
  readonly held: HeldRun;
  readonly batch: Batch;
}

function callsOf(due: readonly Due[]): Due[][] {
  const calls: Due[][] = [];
  let call: Due[] = [];
  let bytes = 0;
  for (const one of due) {
    const { data, hold } = one.batch;
    const size = data.length + hold.length;
    if (call.length === 0 || call.length === RUNS_AT_ONCE || bytes + size > BYTES_AT_ONCE) {
      call = [];
      bytes = 0;
      calls.push(call);
    }
    call.push(one);
    bytes += size;
  }
  return calls;
}

async function store(state: State, due: readonly Due[], sentAt: number): Promise<boolean> {
  let answers: readonly BatchAnswer[];
  try {
    answers = await state.calls.flush(due.map(({ batch }) => batch));
  } catch {
    for (const held of state.urgent) releaseWaiting(held);
    for (const { held } of due) {
      releaseWaiting(held);
      giveUpLate(state, held, sentAt);
    }
    return false;
  }
  for (const [n, { held, batch }] of due.entries()) {
    take(state, held, { batch, answer: answers[n] as BatchAnswer, sentAt });
  }
  return true;
}

function take(
  state: State,
  held: HeldRun,
  { batch, answer, sentAt }: { readonly batch: Batch; readonly answer: BatchAnswer; readonly sentAt: number },
): void {
  if (!state.held.has(held)) return;
  const [status] = answer;
  if (status === 'written' || status === 'closed') {
    held.confirmedAt = sentAt;
    if (answered(held, batch, answer)) {
      removeFrom(state, held);
      if (batch.state === 'given') state.onHandedOver(held, 'handed_over');
      return;
    }
  } else if (batch.state !== '' && (status !== 'gone' || batch.state === 'free' || batch.state === 'given')) {
    removeFrom(state, held);
    if (batch.state === 'given' && status === 'lost') state.onHandedOver(held, 'lost');
    return;
  }
  state.onAnswer(held, answer);
}

/** Gives a run up whose end could not be stored in time: it must not be kept for ever, nor be stored minutes later. */
function giveUpLate(state: State, held: HeldRun, now: number): void {
  const knownEnd = state.held.get(held);
  if (!held.end || knownEnd === undefined) return;
  const endedAt = Math.min(knownEnd, now);
  state.held.set(held, endedAt);
  if (now - endedAt < END_MS) return;
  closeLog(held);
  removeFrom(state, held);
}
