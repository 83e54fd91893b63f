import { asProblem, Problem } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-left.ts';
import type { HoldRun, OptionsWithoutClients, StateWithoutClients } from './lone-run.ts';
import { endAlone, giveUp, lastClientLeft } from './lone-run.ts';
import type { RunLog } from './run-log.ts';
import type { Outlet } from './run-outlet.ts';
import { type RunStream, runStream } from './run-stream.ts';
import { TOO_MANY_OF_USER } from './user-readers.ts';

/** How far a message has come. Its route keeps it up to date. */
export interface Progress {
  /** Whether it has ever left for the bot service. */
  hasLeft: boolean;
  /** Whether it has left, and the service has not refused it since: then it may run. */
  mayHaveStarted: boolean;
  /** The HTTP status of the service, once it has answered. */
  upstreamStatus?: number | undefined;
}

/** One request that waits for the stream of a run, or reads it. */
export interface RunClient {
  /** Aborted with a Problem, it ends the stream of this client with that; with any other reason, the client has left. */
  readonly stop: AbortController;
  /** Lets the end of this client's session, or a shutdown, abort `stop`, the run's own. Returns what undoes it. */
  readonly holdRun: HoldRun;
}

/** The place of one client at a run. */
export interface Seat {
  /** The headers with which the stream begins. Rejects with what the message has failed with, or the reason of `stop`. */
  readonly begun: Promise<ReadonlyMap<string, string>>;
  /** Gives the stream from the offset `at` on to `outlet`. Resolves when that has closed. */
  read(outlet: Outlet, at: number): Promise<void>;
  /** The client is gone. May be called again. */
  leave(): void;
}

/** What `begin` and `over` were told. */
export interface RunOutcome {
  readonly head: ReadonlyMap<string, string> | undefined;
  readonly failure: unknown;
}

export interface RunOptions extends OptionsWithoutClients {
  readonly log: RunLog;
  /** How many bytes the log keeps. */
  readonly maxBytes: number;
  /** The id of the request that has begun it. */
  readonly requestId: string;
  readonly progress: Progress;
  /** Called when the session of a client has ended. */
  readonly onSessionEnd?: () => void;
  /** Called when the run is over and when its last client is gone after that. */
  readonly onChange: () => void;
}

/** A message that is sent, and its stream, for any number of clients. */
export interface Run {
  readonly requestId: string;
  readonly progress: Progress;
  /** Aborts the message. */
  readonly stop: AbortController;
  readonly log: RunLog;
  readonly stream: RunStream;
  /** Headers of every answer to its clients, be it a stream or not. */
  readonly headers: Map<string, string>;
  /** @throws the reason of the client's `stop` if that is aborted already */
  sit(client: RunClient): Seat;
  /** A seat for all clients of other instances. */
  sitElsewhere(stop: AbortController): Seat;
  /** Ends the streams of all its clients with `problem`, and with that the run. */
  endAll(problem: Problem): void;
  /** Call it before the message leaves. @throws Problem if another instance may have taken the run meanwhile */
  mayLeave(): Promise<void>;
  /** Whether it is certain that no other instance has taken the run. */
  isSure(): boolean;
  /** Keeps what is needed to go on with the run elsewhere, if it can: a JSON value. */
  keep(hold: () => unknown): void;
  /** The service has refused the message: without a client, it is not sent again. */
  refused(): void;
  /** The stream begins, with these headers. */
  begin(headers: ReadonlyMap<string, string>): void;
  /** It is over; `error` is what it has failed with before its stream began. The first call decides. */
  over(error?: unknown): void;
  isOver(): boolean;
  /** With what it has begun, if it has, and what it has failed with. */
  outcome(): RunOutcome;
  /** Whether nobody came back to it in time, so that it is being aborted. */
  isGivenUp(): boolean;
  /** Whether it goes on without a client. */
  isAlone(): boolean;
  clients(): number;
}

/** The reason with which the work for a run is aborted when another instance goes on with it. */
export const RUN_ELSEWHERE = Symbol('run elsewhere');

/** A run has no more clients at once. */
const MAX_CLIENTS = 64;
const TOO_MANY = new Problem('too_many_streams', `This answer has ${MAX_CLIENTS} newer readers.`, {
  retryable: false,
});

type Begun = PromiseWithResolvers<ReadonlyMap<string, string>>;

interface State extends StateWithoutClients {
  readonly options: RunOptions;
  /** In the order in which they have come. Most runs have one: this takes less memory than a set. */
  seated: readonly RunClient[];
  /** Those who wait for the beginning of the stream. */
  waiting: Begun[];
  outcome: RunOutcome;
  /** How the last client that has come lets the end of its session end the run. */
  holdRun: HoldRun | undefined;
}

const NO_OUTCOME: RunOutcome = { head: undefined, failure: undefined };
const always = () => true;
const nothing = () => {};

/** Begins a run without a client: `sit` must follow at once. */
export function newRun(options: RunOptions): Run {
  const { log, maxBytes, requestId, progress } = options;
  const stop = new AbortController();
  const stream = runStream({ log, maxBytes });
  const state: State = {
    options,
    stop,
    stream,
    seated: [],
    waiting: [],
    outcome: NO_OUTCOME,
    holdRun: undefined,
    isOver: false,
    alone: undefined,
    asking: undefined,
  };
  // Written out, here and above: what a spread makes takes more time and more memory.
  return {
    requestId,
    progress,
    stop,
    log,
    stream,
    headers: new Map(),
    sit(client) {
      state.holdRun = client.holdRun;
      return sit(state, client);
    },
    sitElsewhere: (own) => sit(state, { stop: own, holdRun: (one) => state.holdRun?.(one) ?? nothing }),
    endAll(problem) {
      for (const client of state.seated) client.stop.abort(problem);
    },
    mayLeave: () => mayLeave(state),
    isSure: always,
    keep: nothing,
    refused() {
      if (state.seated.length === 0) giveUp(state);
    },
    begin: (head) => begin(state, head),
    over: (error) => over(state, state.isOver ? state.outcome.failure : error),
    isOver: () => state.isOver,
    outcome: () => state.outcome,
    isGivenUp: () => stop.signal.reason === CLIENT_LEFT,
    isAlone: () => state.alone !== undefined,
    clients: () => state.seated.length,
  };
}

async function mayLeave({ asking, stop }: State): Promise<void> {
  if (!asking) return;
  await asking;
  stop.signal.throwIfAborted();
}

function begin(state: State, head: ReadonlyMap<string, string>): void {
  if (state.outcome.head || state.isOver) return;
  state.outcome = { head, failure: undefined };
  for (const { resolve } of state.waiting) resolve(head);
  state.waiting = [];
}

function over(state: State, failure: unknown): void {
  const { stream, outcome, seated, waiting, options } = state;
  state.isOver = true;
  state.outcome = { head: outcome.head, failure };
  endAlone(state, 'ended');
  state.waiting = [];
  for (const { reject } of waiting) reject(failure);
  // No reader waits for ever. After a fault, it is not known whether what was written ends inside an event.
  if (!stream.ended() && seated.length > 0) {
    stream.outlet.endEarly(asProblem(failure), stream.outlet.hasBegun());
  }
  options.onChange();
}

/** Resolves with what the stream begins with. It may have begun, or failed, already. */
function awaitBeginning({ outcome, isOver, waiting }: State): Begun {
  const begun: Begun = Promise.withResolvers();
  // There may be nobody who waits for it.
  begun.promise.catch(nothing);
  if (outcome.head) begun.resolve(outcome.head);
  else if (isOver) begun.reject(outcome.failure);
  else waiting.push(begun);
  return begun;
}

function sit(state: State, client: RunClient): Seat {
  const { signal } = client.stop;
  signal.throwIfAborted();
  if (state.seated.length >= MAX_CLIENTS) state.seated[0]?.stop.abort(TOO_MANY);
  endAlone(state, 'returned');
  state.seated = state.seated.length === 0 ? [client] : [...state.seated, client];
  const begun = awaitBeginning(state);
  let endReading: ((problem: Problem) => void) | undefined;
  const onAbort = () => {
    const { reason } = signal;
    const isLast = state.seated.length === 1 && state.seated[0] === client;
    // What ends the last client ends the run, in its own way.
    const endsRun = isLast && reason instanceof Problem && reason !== TOO_MANY_OF_USER;
    if (endsRun && !state.isOver) state.stop.abort(reason);
    else begun.reject(reason);
    if (reason instanceof Problem) endReading?.(reason);
    if (reason instanceof Problem && reason.code === 'session_ended') state.options.onSessionEnd?.();
    leave(state, client);
  };
  signal.addEventListener('abort', onAbort, { once: true });
  return {
    begun: begun.promise,
    read: (outlet, at) =>
      new Promise((resolve) => {
        if (signal.aborted && !(signal.reason instanceof Problem)) return resolve();
        endReading = state.stream.read(outlet, at, resolve).end;
        if (signal.aborted) endReading(signal.reason);
      }),
    leave() {
      signal.removeEventListener('abort', onAbort);
      leave(state, client);
    },
  };
}

function leave(state: State, client: RunClient): void {
  const { seated, isOver, options } = state;
  if (!seated.includes(client)) return;
  state.seated = seated.filter((one) => one !== client);
  if (state.seated.length > 0) return;
  if (isOver) options.onChange();
  else lastClientLeft(state, client.holdRun);
}
