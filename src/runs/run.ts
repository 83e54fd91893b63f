import { asProblem, type Problem } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-connection.ts';
import type { RunName } from './run-name.ts';
import { isShutdown, problemForReader, STOPPED } from './run-problems.ts';
import { attach, type Reader, type ReaderClient, type RunHead } from './run-reader.ts';
import { RunStream, type RunStreamOptions } from './run-stream.ts';

/**
 * How far a run has come. `waiting`: nothing of it has left for the bot service; `sent`: it may run; `refused`: the
 * service has refused it, and it waits to be sent again; `streaming`: its answer has begun.
 */
export type RunPhase = 'waiting' | 'sent' | 'refused' | 'streaming';

/** What became of a run that all its readers had left. */
export type GraceOutcome = 'returned' | 'expired' | 'ended';

/** What the store does for a run that this instance carries. */
export interface CarriedRun {
  /** Stores what is new of the run soon, if it is read elsewhere. */
  wake(): void;
  /** Whether other instances can read it. */
  readonly isShared: boolean;
  /** Asks at once whether it is read at other instances, and calls its `readElsewhere`. Never rejects. */
  askForReaders(): Promise<void>;
  /** Stores its end, and what becomes of its name. Resolves after the first attempt. Never rejects. */
  storeEnd(): Promise<void>;
}

export interface RunOptions extends RunStreamOptions {
  readonly id: string;
  /** Undefined if nobody can join it. */
  readonly name: RunName | undefined;
  readonly requestId: string;
  /** The key of the conversation whose stop drops it; undefined if no stop does. */
  readonly conversation: string | undefined;
  /** Since when its message waits, by `performance.now()` in ms. */
  readonly waitsSince: number;
  /** How long it goes on without a reader, in ms. */
  readonly graceMs: number;
  /** Called when it has ended, and when its last reader is gone after that. */
  readonly onEnd: (run: Run) => void;
  /** Called when the time is over for which it has gone on without readers. */
  readonly onGrace: (run: Run, outcome: GraceOutcome) => void;
}

/**
 * One message, its stream, and its readers at this instance. Either this instance carries the run, or it reads from the
 * store what another one carries. Only the methods below change its state, and they do so before they return.
 */
export class Run {
  private readonly options: RunOptions;
  /** Id and request of the run that is read: `follow` replaces them. */
  id: string;
  requestId: string;
  readonly name: RunName | undefined;
  readonly conversation: string | undefined;
  readonly waitsSince: number;
  readonly stream: RunStream;
  /** Aborted with a Problem or with `CLIENT_LEFT`, it ends the work for the run. */
  readonly stop = new AbortController();
  /** Headers of every answer to its readers, be it a stream or not. */
  readonly headers = new Map<string, string>();
  /** How far it has come; after its end, how far it had come then. */
  phase: RunPhase = 'waiting';
  private hasEnded = false;
  /** The HTTP status of the service, once it has answered. */
  upstreamStatus: number | undefined;
  /** Whether another instance carries it. */
  isElsewhere = false;
  /** Undefined without a name, and if another instance carries it. */
  carried: CarriedRun | undefined;
  /** Resolves when its end is stored, or that was tried. */
  stored: Promise<void> = Promise.resolve();
  /** Resolves when it is known whether other instances read it; asked when its last reader here has left. */
  readersKnown: Promise<void> = Promise.resolve();
  failure: unknown;
  head: RunHead | undefined;
  readonly readers = new Set<Reader>();
  /** How many clients look for an event in it, to read on from there. */
  seekers = 0;
  readonly streamBegun = Promise.withResolvers<RunHead>();
  private isReadElsewhere = false;
  /** Whether its conversation was stopped: if the service refuses it, it is not sent again. */
  private isStopped = false;
  private grace: NodeJS.Timeout | undefined;
  /** While it has no reader: the session of the last one, and what has ended that reader or its session. */
  private binding: { readonly release: () => void; endedWith: Problem | undefined } | undefined;

  constructor(options: RunOptions) {
    this.options = options;
    this.id = options.id;
    this.requestId = options.requestId;
    this.name = options.name;
    this.conversation = options.conversation;
    this.waitsSince = options.waitsSince;
    this.stream = new RunStream(options);
    // No unhandled rejection if nothing waits for it.
    this.streamBegun.promise.catch(() => {});
  }

  get state(): RunPhase | 'ended' {
    return this.hasEnded ? 'ended' : this.phase;
  }

  /** Whether it has ever left for the bot service. */
  get hasLeft(): boolean {
    return this.phase !== 'waiting';
  }

  /** Whether the service may run it, or may have run it. */
  get mayHaveRun(): boolean {
    return this.phase === 'sent' || this.phase === 'streaming';
  }

  /** Whether it goes on without a reader. */
  get isInGrace(): boolean {
    return this.grace !== undefined;
  }

  /** Lets a client read the run. @throws the reason of its `stop`, if that is aborted already */
  attach(client: ReaderClient): Reader {
    client.stop.signal.throwIfAborted();
    this.endGrace('returned');
    this.unbind();
    return attach(this, client);
  }

  /** It has left for the bot service, from this instance or, as far as is known, from another. */
  sent(): void {
    this.phase = 'sent';
  }

  /** The service has refused it. It is not sent again if it was stopped, or has no reader. */
  refused(): void {
    if (this.state !== 'sent') return;
    this.phase = 'refused';
    if (this.isStopped) this.stop.abort(STOPPED);
    else if (this.readers.size === 0) this.checkReaders();
  }

  /** Its stream begins. */
  beginStream(head: RunHead): void {
    if (this.hasEnded) return;
    this.phase = 'streaming';
    this.head = head;
    this.carried?.wake();
    this.streamBegun.resolve(head);
  }

  /** Ends it. `failure`: why its stream did not begin; `phase`: how far it had come elsewhere. The first call counts. */
  end(failure?: unknown, phase = this.phase): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.phase = phase;
    this.failure = failure;
    this.endGrace('ended');
    this.unbind();
    this.streamBegun.reject(failure);
    // Otherwise its readers would wait for ever. After a fault, the stream may end inside an event.
    if (!this.stream.ended) this.stream.endEarly(asProblem(failure), this.stream.hasBegun());
    if (this.carried) this.stored = this.carried.storeEnd();
    this.options.onEnd(this);
  }

  /** Its conversation was stopped. If it may run already, the service must stop it. Returns whether it was dropped. */
  conversationStopped(): boolean {
    if (this.isElsewhere || this.stop.signal.aborted) return false;
    this.isStopped = true;
    if (!this.mayHaveRun) this.stop.abort(STOPPED);
    return !this.mayHaveRun;
  }

  /** The run `other` of another instance has its name: from now on, its readers get what is stored of that one. */
  follow(other: { readonly id: string; readonly requestId: string }): void {
    this.isElsewhere = true;
    this.id = other.id;
    this.requestId = other.requestId;
    // The other instance may have sent it.
    this.sent();
  }

  /** Whether other instances read it now; `upTo` is the offset up to which they can get it from the store. */
  readElsewhere(isRead: boolean, upTo: number): void {
    const wasRead = this.isReadElsewhere;
    this.isReadElsewhere = isRead;
    this.stream.takenElsewhere(isRead ? upTo : 0);
    if (isRead) this.endGrace('returned');
    else if (wasRead && this.readers.size === 0) this.checkReaders();
  }

  /** A reader is gone; `endedBy` is what has ended it. */
  left(reader: Reader, endedBy?: Problem): void {
    if (!this.readers.delete(reader) || this.readers.size > 0) return;
    if (this.hasEnded) return void this.options.onEnd(this);
    this.bind(reader, endedBy);
    this.checkReaders();
  }

  /** Ends it or begins its grace if it has no reader, and no client looks for an event in it. */
  checkReaders(): void {
    if (this.readers.size + this.seekers > 0 || this.stop.signal.aborted || this.stream.ended) return;
    if (this.isElsewhere) this.abandon();
    // A shutdown does not wait for readers at other instances.
    else if (isShutdown(this.binding?.endedWith)) this.stop.abort(this.binding?.endedWith);
    else this.readersKnown = this.ifUnreadAnywhere(() => this.endOrWait());
  }

  /** What has ended its last reader ends it; if that one has just left, it may go on for its grace. */
  private endOrWait(): void {
    const { endedWith } = this.binding ?? {};
    if (endedWith) this.stop.abort(endedWith);
    else if (!this.mayHaveRun || this.options.graceMs === 0) this.abandon();
    else this.grace ??= setTimeout(() => this.ifUnreadAnywhere(() => this.abandon()), this.options.graceMs);
  }

  /** Calls `act` if nobody reads it; asks first for readers at other instances. */
  private async ifUnreadAnywhere(act: () => void): Promise<void> {
    if (this.carried?.isShared) await this.carried.askForReaders();
    const isRead = this.readers.size > 0 || this.isReadElsewhere;
    if (!isRead && !this.hasEnded && !this.stop.signal.aborted) act();
  }

  private endGrace(outcome: GraceOutcome): void {
    if (!this.grace) return;
    clearTimeout(this.grace);
    this.grace = undefined;
    this.options.onGrace(this, outcome);
  }

  /** Binds it to the session of its last reader, which has left. */
  private bind({ client }: Reader, endedWith: Problem | undefined): void {
    const stop = new AbortController();
    const binding = { release: client.bindToSession(stop), endedWith };
    this.binding = binding;
    const end = () => {
      binding.endedWith = problemForReader(stop.signal.reason, this);
      this.checkReaders();
    };
    if (stop.signal.aborted) binding.endedWith ??= problemForReader(stop.signal.reason, this);
    else stop.signal.addEventListener('abort', end);
  }

  private unbind(): void {
    this.binding?.release();
    this.binding = undefined;
  }

  /** Ends it, since nobody reads it. */
  abandon(): void {
    if (this.hasEnded) return;
    this.endGrace('expired');
    this.stop.abort(CLIENT_LEFT);
    this.stream.abandon();
    this.end(CLIENT_LEFT);
  }
}
