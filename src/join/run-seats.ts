import { Problem } from '../errors.ts';
import type { HoldRun, OptionsWithoutClients, StateWithoutClients } from './lone-run.ts';
import { endAlone, lastClientLeft } from './lone-run.ts';
import type { Outlet } from './run-outlet.ts';
import type { Reader } from './run-stream.ts';
import { TOO_MANY_OF_USER } from './user-readers.ts';

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

/** What `begin` and `over` of a run were told. */
export interface RunOutcome {
  readonly head: ReadonlyMap<string, string> | undefined;
  readonly failure: unknown;
}

/** One who waits for the beginning of a stream. */
export type Begun = PromiseWithResolvers<ReadonlyMap<string, string>>;

/** A run of which clients have seats. */
export interface StateWithSeats extends StateWithoutClients {
  readonly options: OptionsWithoutClients & {
    readonly onSessionEnd?: () => void;
    readonly onChange: () => void;
  };
  /** In the order in which they have come. Most runs have one: this takes less memory than a set. */
  seated: readonly RunClient[];
  waiting: readonly Begun[];
  outcome(): RunOutcome;
}

/** A run has no more clients at once. */
const MAX_CLIENTS = 64;
const TOO_MANY = new Problem('too_many_streams', `This answer has ${MAX_CLIENTS} newer readers.`, {
  retryable: false,
});

const nothing = () => {};

/** Gives a client a seat. @throws the reason of the client's `stop` if that is aborted already */
export function sit(state: StateWithSeats, client: RunClient): Seat {
  const { signal } = client.stop;
  signal.throwIfAborted();
  if (state.seated.length >= MAX_CLIENTS) state.seated[0]?.stop.abort(TOO_MANY);
  endAlone(state, 'returned');
  state.seated = state.seated.length === 0 ? [client] : [...state.seated, client];
  const begun = awaitBeginning(state);
  let reader: Reader | undefined;
  const onAbort = () => {
    const { reason } = signal;
    const isLast = state.seated.length === 1 && state.seated[0] === client;
    // What ends the last client ends the run, in its own way.
    const endsRun = isLast && reason instanceof Problem && reason !== TOO_MANY_OF_USER;
    if (endsRun && !state.hasEnded) state.stop.abort(reason);
    else begun.reject(reason);
    if (reason instanceof Problem) reader?.end(reason);
    if (reason instanceof Problem && reason.code === 'session_ended') state.options.onSessionEnd?.();
    leave(state, client);
  };
  signal.addEventListener('abort', onAbort, { once: true });
  return {
    begun: begun.promise,
    read: (outlet, at) =>
      new Promise((resolve) => {
        if (signal.aborted && !(signal.reason instanceof Problem)) return resolve();
        reader = state.stream.read(outlet, at, resolve);
        if (signal.aborted) reader.end(signal.reason);
      }),
    leave() {
      signal.removeEventListener('abort', onAbort);
      if (state.waiting.length > 0) state.waiting = state.waiting.filter((one) => one !== begun);
      leave(state, client);
    },
  };
}

/** Resolves with what the stream begins with. It may have begun, or failed, already. */
function awaitBeginning(state: StateWithSeats): Begun {
  const begun: Begun = Promise.withResolvers();
  // There may be nobody who waits for it.
  begun.promise.catch(nothing);
  const { head, failure } = state.outcome();
  if (head) begun.resolve(head);
  else if (state.hasEnded) begun.reject(failure);
  else state.waiting = [...state.waiting, begun];
  return begun;
}

function leave(state: StateWithSeats, client: RunClient): void {
  const { seated, hasEnded, options } = state;
  if (!seated.includes(client)) return;
  state.seated = seated.filter((one) => one !== client);
  if (state.seated.length > 0) return;
  if (hasEnded) options.onChange();
  else lastClientLeft(state, client.holdRun);
}
