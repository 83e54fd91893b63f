import { randomUUID } from 'node:crypto';
import { Problem } from '../errors.ts';
import { joinFoundRun, lookAt } from './followed-runs.ts';
import type { HeldRun } from './held-run.ts';
import { beginRun, claimAgain, onAnswer } from './held-runs.ts';
import type { GoOn, JoinableRuns, JoinEntry, RunEntry } from './joinable-runs.ts';
import { lostClaims } from './lost-claims.ts';
import { SESSION_OVER } from './remote-readers.ts';
import type { RunInRedis } from './run-calls.ts';
import { runFlush } from './run-flush.ts';
import type { MessageName, RunName } from './run-name.ts';
import { notKept, over } from './runs.ts';
import { askOtherInstances, type SharedOptions, type SharedState } from './shared-state.ts';
import { takeOver } from './take-over.ts';

/** The runs that this instance shares with others. */
export interface SharedRuns {
  readonly runs: JoinableRuns;
  /** Something has come of these runs, whose ids have a space between. */
  onNews(ids: string): void;
  /** Redis is there again: it may have lost its data, and news may be lost. Asks about each run at once. */
  onListening(): void;
  /**
   * Whether clients of other instances read a run that this one carries, or may come back to it. Call it when it has no
   * more clients of its own.
   */
  mayBeReadElsewhere(): boolean;
  handOver(): Promise<void>;
  close(): Promise<void>;
}

/** A shutdown ends the reader, and another instance goes on. */
const SAME_MESSAGE = new Problem('draining', 'The relay is shutting down; send the same message again.', {
  retryable: 'same message',
});

/** What is stored says whose a run is; this instance knows those that it carries, and those that its clients read. */
export function sharedRuns(options: SharedOptions): SharedRuns {
  const { calls, codec } = options;
  let goOn: GoOn | undefined;
  const state: SharedState = {
    ...{ ...options, runsHere: new Map(), claims: new Map(), logTimer: undefined },
    lostClaims: lostClaims(calls, codec),
    flush: runFlush({
      ...{ calls, codec, maxBytes: options.maxBytes },
      onAnswer: (held, answer) => onAnswer(state, held, answer),
      onHandedOver(held, outcome) {
        options.onMoved(held.run, outcome);
        held.run.endAll(SAME_MESSAGE);
      },
    }),
    following: { calls, codec, onLost: (one) => takeOver(state, one, goOn), onFault: options.onFault },
  };
  return {
    runs: {
      enter: (name, entry) => enter(state, name, entry),
      newest: (name, entry) => newest(state, name, entry),
      forget: (conversation, except) => calls.forget(conversation, except?.key ?? ''),
      whenTaken(handler) {
        goOn = handler;
      },
    },
    onNews(ids) {
      if (ids.startsWith('?')) askAbout(state, ids.slice(1));
      else if (ids.startsWith('!')) state.runsHere.get(ids.slice(1))?.held?.others.endUnread(SESSION_OVER);
      else for (const id of ids.split(' ')) lookAt(state, state.runsHere.get(id));
    },
    onListening() {
      for (const { held } of state.runsHere.values()) if (held) held.held.isAsking = true;
      void state.flush.flushNow();
    },
    mayBeReadElsewhere: () =>
      [...state.runsHere.values()].some(
        // Nobody can come back to a run whose log is closed.
        ({ held, run }) =>
          held && !run.isOver() && (run.clients() > 0 || (run.isAlone() && held.held.log === 'open')),
      ),
    handOver: () => handOver(state),
    async close() {
      clearInterval(state.logTimer);
      state.lostClaims.close();
      await state.flush.close();
    },
  };
}

/** Claims the name, or joins the run that has it. */
async function enter<T>(state: SharedState, name: RunName, entry: RunEntry<T>): Promise<T | undefined> {
  const { calls, claims } = state;
  const { lastEventId, requestId, onAsked } = entry;
  const known = await reclaim(state, state.flush.find(name));
  if (known && known.state !== 'forgotten') return joinGranted(state, known, entry);
  if (lastEventId !== undefined) return joinGranted(state, await calls.enter(name, undefined), entry);
  const claim = { id: calls.newId(name.conversation), token: randomUUID(), requestId };
  const claimed = Promise.withResolvers<void>();
  const sentAt = performance.now();
  claims.set(claim.id, claimed.promise);
  try {
    const answer = calls.enter(name, claim);
    onAsked?.();
    const inRedis = await answer;
    if (inRedis.state === 'claimed') return beginRun(state, { claim, name, sentAt }, entry);
    // No run has come of it: another has the name.
    state.codec.forget(claim.id);
    return await joinGranted(state, inRedis, entry);
  } catch (error) {
    if (error instanceof Problem && error.code === 'session_store_unavailable')
      state.lostClaims.add(claim, error);
    throw error;
  } finally {
    claims.delete(claim.id);
    claimed.resolve();
  }
}

/** What may be refused takes no seat at the run of another. */
async function joinGranted<T>(
  state: SharedState,
  inRedis: RunInRedis,
  entry: JoinEntry<T> & Pick<RunEntry<T>, 'granted'>,
): Promise<T | undefined> {
  const { id } = inRedis;
  try {
    await entry.granted;
    return await joinFoundRun(state, inRedis, entry);
  } finally {
    // What is told of a run was opened with its keys.
    if (!state.runsHere.has(id)) state.codec.forget(id);
  }
}

/** Redis may have lost a run that is here: then its name is claimed again. Undefined if none is here. */
async function reclaim(state: SharedState, held: HeldRun | undefined): Promise<RunInRedis | undefined> {
  if (!held || held.end?.state === 'free') return undefined;
  const inRedis = await claimAgain(state, held);
  return inRedis.state === 'claimed' ? { ...inRedis, id: held.id, state: 'live', first: -1 } : inRedis;
}

/** Somebody begins to follow a run elsewhere: asks at once, so that it does not end for want of a client. */
function askAbout(state: SharedState, id: string): void {
  const one = state.runsHere.get(id);
  if (one) void askOtherInstances(state, one);
}

async function newest<T>(state: SharedState, name: MessageName, entry: JoinEntry<T>): Promise<T> {
  let inRedis = await state.calls.newest(name);
  const here = inRedis.state === 'over' ? state.flush.ofMessage(name) : [];
  // The newest one is claimed last.
  for (const held of here) await reclaim(state, held);
  if (here.length > 0) inRedis = await state.calls.newest(name);
  const joined = await joinGranted(state, inRedis, entry);
  if (joined === undefined) throw inRedis.state === 'over' ? over() : notKept();
  return joined;
}

/** Gives what others can go on with, and sends the readers of all to them. */
async function handOver(state: SharedState): Promise<void> {
  for (const { run, held } of state.runsHere.values()) {
    if (held?.held.source?.resumeState?.()) held.held.isHandedOver = true;
    else if (!held) run.endAll(SAME_MESSAGE);
  }
  await state.flush.flushNow();
}
