import { asProblem, type Problem } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-left.ts';
import type { HoldRun, OptionsWithoutClients } from './lone-run.ts';
import { endAlone, giveUp, holdAgain } from './lone-run.ts';
import type { RunLog } from './run-log.ts';
import {
  type Begun,
  type RunClient,
  type RunOutcome,
  type Seat,
  type StateWithSeats,
  sit,
} from './run-seats.ts';
import { type RunStream, runStream } from './run-stream.ts';

/** How far a message has come. Its route keeps it up to date. */
export interface Progress {
  /** Whether it has ever left for the bot service. */
  hasLeft: boolean;
  /** Whether it has left, and the service has not refused it since: then it may run. */
  mayHaveStarted: boolean;
  /** The HTTP status of the service, once it has answered. */
  upstreamStatus?: number | undefined;
}

export interface RunOptions extends OptionsWithoutClients {
  readonly log: RunLog;
  /** How many bytes the log keeps. */
  readonly maxBytes: number;
  /** The id of the request that has begun it. */
  readonly requestId: string;
  readonly progress: Progress;
  /** Called when a client has taken a seat. */
  readonly onSeat?: () => void;
  /** Called when the session of a client has ended. */
  readonly onSessionEnd?: () => void;
  /** Called when the run is over and when its last client is gone after that. */
  readonly onChange: () => void;
}

/** A message that is sent, and its stream, for any number of clients. */
export interface Run {
  readonly requestId: string;
  readonly progress: Progress;
  /** Aborts the message, as its deadlines do. When another instance takes the run, it gets a new one. */
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
  /**
   * Call it before the message leaves, and wait for what it returns: undefined only if there is nothing to wait for.
   * @throws Problem if another instance may have taken the run meanwhile
   */
  mayLeave(): Promise<void> | undefined;
  /** Whether it is certain that no other instance has taken the run. */
  isSure(): boolean;
  /** Keeps what is needed to go on with the run elsewhere, if it can: a JSON value. */
  keep(hold: () => unknown): void;
  /** The service has refused the message: without a client, it is not sent again. */
  refused(): void;
  /** Another instance goes on with the run: aborts what carries it here, and not the run. */
  moveElsewhere(): void;
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

const NO_OUTCOME: RunOutcome = { head: undefined, failure: undefined };
const NOBODY: readonly never[] = [];
const nothing = () => {};

/** Begins a run without a client: `sit` must follow at once. */
export function newRun(options: RunOptions): Run {
  return new OpenRun(options);
}

/** Its methods are those of all runs: closures of each of many runs would take more time and more memory. */
class OpenRun implements Run, StateWithSeats {
  readonly options: RunOptions;
  stop = new AbortController();
  readonly stream: RunStream;
  readonly headers = new Map<string, string>();
  seated: readonly RunClient[] = NOBODY;
  waiting: readonly Begun[] = NOBODY;
  outcomeSoFar = NO_OUTCOME;
  /** How the last client that has come lets the end of its session end the run. */
  holdRun: HoldRun | undefined = undefined;
  hasEnded = false;
  alone: StateWithSeats['alone'] = undefined;
  asking: StateWithSeats['asking'] = undefined;

  constructor(options: RunOptions) {
    this.options = options;
    this.stream = runStream(options);
  }

  get requestId() {
    return this.options.requestId;
  }

  get progress() {
    return this.options.progress;
  }

  get log() {
    return this.options.log;
  }

  sit(client: RunClient): Seat {
    this.holdRun = client.holdRun;
    const seat = sit(this, client);
    this.options.onSeat?.();
    return seat;
  }

  sitElsewhere(stop: AbortController): Seat {
    return sit(this, { stop, holdRun: (one) => this.holdRun?.(one) ?? nothing });
  }

  endAll(problem: Problem): void {
    for (const { stop } of this.seated) stop.abort(problem);
  }

  mayLeave(): Promise<void> | undefined {
    return this.asking?.then(() => this.stop.signal.throwIfAborted());
  }

  isSure(): boolean {
    return true;
  }

  keep(): void {}

  refused(): void {
    if (this.seated.length === 0) giveUp(this);
  }

  moveElsewhere(): void {
    const { stop } = this;
    if (this.isGivenUp()) return;
    this.stop = new AbortController();
    holdAgain(this);
    stop.abort(RUN_ELSEWHERE);
  }

  begin(head: ReadonlyMap<string, string>): void {
    if (this.outcomeSoFar.head || this.hasEnded) return;
    this.outcomeSoFar = { head, failure: undefined };
    const { waiting } = this;
    this.waiting = NOBODY;
    for (const { resolve } of waiting) resolve(head);
  }

  over(error?: unknown): void {
    const failure = this.hasEnded ? this.outcomeSoFar.failure : error;
    const { stream, outcomeSoFar, seated, waiting, options } = this;
    this.hasEnded = true;
    this.outcomeSoFar = { head: outcomeSoFar.head, failure };
    endAlone(this, 'ended');
    this.waiting = NOBODY;
    for (const { reject } of waiting) reject(failure);
    // No reader waits for ever. After a fault, it is not known whether what was written ends inside an event.
    if (!stream.ended() && seated.length > 0) {
      stream.outlet.endEarly(asProblem(failure), stream.outlet.hasBegun());
    }
    options.onChange();
  }

  isOver(): boolean {
    return this.hasEnded;
  }

  outcome(): RunOutcome {
    return this.outcomeSoFar;
  }

  isGivenUp(): boolean {
    return this.stop.signal.reason === CLIENT_LEFT;
  }

  isAlone(): boolean {
    return this.alone !== undefined;
  }

  clients(): number {
    return this.seated.length;
  }
}
