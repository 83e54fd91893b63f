import { CLIENT_LEFT } from '../http/client-left.ts';
import type { RunStream } from './run-stream.ts';

/** What becomes of a run that all its clients have left. */
export type LeftRunOutcome = 'returned' | 'expired' | 'ended';

/** Lets the end of a session, or a shutdown, abort `stop`. Returns what undoes it. */
export type HoldRun = (stop: AbortController) => () => void;

export interface OptionsWithoutClients {
  readonly progress: { readonly mayHaveStarted: boolean };
  /** How long the run goes on without a client, in ms. */
  readonly graceMs: () => number;
  /** Lets clients of other instances sit down before the run is given up; undefined if there can be none. */
  readonly askOtherInstances?: () => Promise<unknown> | undefined;
  /** Called when a run without clients has got one, has waited in vain, or has ended. */
  readonly onLeft: (outcome: LeftRunOutcome) => void;
}

/** What decides whether a run goes on without a client. */
export interface StateWithoutClients {
  readonly options: OptionsWithoutClients;
  readonly stop: AbortController;
  readonly stream: RunStream;
  seated: readonly unknown[];
  hasEnded: boolean;
  /** Set while the run goes on without a client. */
  alone: { readonly timer: NodeJS.Timeout; readonly hold: HoldRun; release: () => void } | undefined;
  /** Set while other instances are asked for clients: the message must not leave meanwhile. */
  asking: Promise<void> | undefined;
}

/** The last client has left: the run goes on alone for a while, or is given up. */
export function lastClientLeft(state: StateWithoutClients, hold: HoldRun): void {
  // Then it is ending by itself.
  if (state.stop.signal.aborted || state.stream.ended()) return;
  if (mayStay(state)) stayAlone(state, hold);
  else giveUp(state, hold);
}

function mayStay({ options }: StateWithoutClients): boolean {
  return options.progress.mayHaveStarted && options.graceMs() > 0;
}

function stayAlone(state: StateWithoutClients, hold: HoldRun): void {
  const timer = setTimeout(() => giveUp(state), state.options.graceMs());
  state.alone = { timer, hold, release: hold(state.stop) };
}

/** The run has another `stop`: if it goes on without a client, the end of a session aborts that one from now on. */
export function holdAgain({ alone, stop }: StateWithoutClients): void {
  if (!alone) return;
  alone.release();
  alone.release = alone.hold(stop);
}

/** Nobody has come back here, and `hold` is that of the last client: aborts the message, unless clients elsewhere read it. */
export function giveUp(state: StateWithoutClients, hold?: HoldRun): void {
  const asked = state.options.askOtherInstances?.();
  if (!asked) return void abandon(state);
  const { alone, stream } = state;
  const asking = asked.then(() => {
    if (state.asking === asking) state.asking = undefined;
    const hasChanged = state.seated.length > 0 || state.alone !== alone || state.hasEnded;
    if (hasChanged || state.stop.signal.aborted || stream.ended()) return;
    // It was on its way already.
    if (hold && mayStay(state)) stayAlone(state, hold);
    else abandon(state);
  });
  state.asking = asking;
}

/** The stream of the run is read no further. */
function abandon(state: StateWithoutClients): void {
  endAlone(state, 'expired');
  state.stop.abort(CLIENT_LEFT);
  state.stream.abandon();
}

/** The run does not go on without a client any more, if it did. */
export function endAlone(state: StateWithoutClients, outcome: LeftRunOutcome): void {
  const { alone } = state;
  if (!alone) return;
  state.alone = undefined;
  clearTimeout(alone.timer);
  alone.release();
  state.options.onLeft(outcome);
}
