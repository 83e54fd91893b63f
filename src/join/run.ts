import { asProblem, Problem } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-left.ts';
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
  readonly holdRun: (stop: AbortController) => () => void;
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

/** What becomes of a run that all its clients have left. */
export type LeftRunOutcome = 'returned' | 'expired' | 'ended';

export interface RunOptions {
  readonly log: RunLog;
  /** How many bytes the log keeps. */
  readonly maxBytes: number;
  /** How long the run goes on without a client, in ms. */
  readonly graceMs: () => number;
  /** The id of the request that has begun it. */
  readonly requestId: string;
  readonly progress: Progress;
  /** Lets clients of other instances sit down before the run is given up; undefined if there can be none. */
  readonly askElsewhere?: () => Promise<unknown> | undefined;
  /** Called when the session of a client has ended. */
  readonly onSessionEnd?: () => void;
  /** Called when a run without clients has got one, has waited in vain, or has ended. */
  readonly onLeft: (outcome: LeftRunOutcome) => void;
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
  /** It is over; `error` is what it has failed with before its stream began. */
  over(error?: unknown): void;
  isOver(): boolean;
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

interface State extends RunOptions {
  readonly stop: AbortController;
  readonly stream: RunStream;
  readonly start: PromiseWithResolvers<ReadonlyMap<string, string>>;
  readonly seated: Set<RunClient>;
  /** How the last client that has come lets the end of its session end the run. */
  holdRun: RunClient['holdRun'];
  isOver: boolean;
  /** Set while the run goes on without a client. */
  alone: { readonly timer: NodeJS.Timeout; readonly release: () => void } | undefined;
  /** Set while other instances are asked for clients: the message must not leave meanwhile. */
  asking: Promise<void> | undefined;
}

/** Begins a run without a client: `sit` must follow at once. */
export function newRun(options: RunOptions): Run {
  const start = Promise.withResolvers<ReadonlyMap<string, string>>();
  // There may be nobody who waits for it.
  start.promise.catch(() => {});
  const state: State = {
    ...{ ...options, stop: new AbortController(), stream: runStream(options), start },
    ...{ seated: new Set(), isOver: false, alone: undefined, asking: undefined, holdRun: () => () => {} },
  };
  const { stop, stream, log, requestId, progress } = state;
  return {
    ...{ requestId, progress, stop, log, stream, headers: new Map() },
    sit(client) {
      state.holdRun = client.holdRun;
      return sit(state, client);
    },
    sitElsewhere: (stop) => sit(state, { stop, holdRun: (own) => state.holdRun(own) }),
    endAll(problem) {
      for (const client of [...state.seated]) client.stop.abort(problem);
    },
    async mayLeave() {
      if (!state.asking) return;
      await state.asking;
      stop.signal.throwIfAborted();
    },
    isSure: () => true,
    keep() {},
    refused() {
      if (state.seated.size === 0) giveUp(state);
    },
    begin: start.resolve,
    over(error) {
      state.isOver = true;
      endAlone(state, 'ended');
      start.reject(error);
      // No reader waits for ever. After a fault, it is not known whether what was written ends inside an event.
      if (!stream.ended() && state.seated.size > 0) {
        stream.outlet.endEarly(asProblem(error), stream.outlet.hasBegun());
      }
      state.onChange();
    },
    isOver: () => state.isOver,
    isGivenUp: () => stop.signal.reason === CLIENT_LEFT,
    isAlone: () => state.alone !== undefined,
    clients: () => state.seated.size,
  };
}

function sit(state: State, client: RunClient): Seat {
  const { seated, stream, start } = state;
  const { signal } = client.stop;
  signal.throwIfAborted();
  const [oldest] = seated;
  if (seated.size >= MAX_CLIENTS) oldest?.stop.abort(TOO_MANY);
  endAlone(state, 'returned');
  seated.add(client);
  const wait = Promise.withResolvers<ReadonlyMap<string, string>>();
  wait.promise.catch(() => {});
  let endReading = (_problem: Problem) => {};
  const onAbort = () => {
    const { reason } = signal;
    const isLast = seated.size === 1 && seated.has(client);
    // What ends the last client ends the run, in its own way.
    const endsRun = isLast && reason instanceof Problem && reason !== TOO_MANY_OF_USER;
    if (endsRun && !state.isOver) state.stop.abort(reason);
    else wait.reject(reason);
    if (reason instanceof Problem) endReading(reason);
    if (reason instanceof Problem && reason.code === 'session_ended') state.onSessionEnd?.();
    leave(state, client);
  };
  signal.addEventListener('abort', onAbort, { once: true });
  start.promise.then(wait.resolve, wait.reject);
  return {
    begun: wait.promise,
    read: (outlet, at) =>
      new Promise((resolve) => {
        if (signal.aborted && !(signal.reason instanceof Problem)) return resolve();
        endReading = stream.read(outlet, at, resolve).end;
        if (signal.aborted) endReading(signal.reason);
      }),
    leave() {
      signal.removeEventListener('abort', onAbort);
      leave(state, client);
    },
  };
}

function leave(state: State, client: RunClient): void {
  const { seated, isOver, progress, graceMs, onChange } = state;
  if (!seated.delete(client) || seated.size > 0) return;
  if (isOver) onChange();
  // Then it is ending by itself.
  else if (state.stop.signal.aborted || state.stream.ended()) return;
  else if (progress.mayHaveStarted && graceMs() > 0) stayAlone(state, client);
  else giveUp(state, client);
}

function stayAlone(state: State, client: RunClient): void {
  const timer = setTimeout(() => giveUp(state), state.graceMs());
  state.alone = { timer, release: client.holdRun(state.stop) };
}

/** Nobody has come back here, and `left` was the last: aborts the message, unless clients elsewhere read it. */
function giveUp(state: State, left?: RunClient): void {
  const asked = state.askElsewhere?.();
  if (!asked) return void abandon(state);
  const { alone, seated, stop, stream, progress } = state;
  const asking = asked.then(() => {
    if (state.asking === asking) state.asking = undefined;
    const hasChanged = seated.size > 0 || state.alone !== alone || state.isOver;
    if (hasChanged || stop.signal.aborted || stream.ended()) return;
    // It was on its way already.
    if (left && progress.mayHaveStarted && state.graceMs() > 0) stayAlone(state, left);
    else abandon(state);
  });
  state.asking = asking;
}

/** The stream of the run is read no further. */
function abandon(state: State): void {
  endAlone(state, 'expired');
  state.stop.abort(CLIENT_LEFT);
  state.stream.abandon();
}

function endAlone(state: State, outcome: LeftRunOutcome): void {
  const { alone } = state;
  if (!alone) return;
  state.alone = undefined;
  clearTimeout(alone.timer);
  alone.release();
  state.onLeft(outcome);
}
