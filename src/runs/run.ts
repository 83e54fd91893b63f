import { asProblem, type Problem } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-connection.ts';
import type { RunName } from './run-name.ts';
import { endingOf, isShutdown, STOPPED } from './run-problems.ts';
import { attach, type Reader, type ReaderClient, type RunHead } from './run-reader.ts';
import { RunStream, type RunStreamOptions } from './run-stream.ts';

/**
 * `waiting`: nothing of it has left, or the service has refused what left; `sent`: it may run; `streaming`: its answer
 * has begun; `ended`.
 */
export type RunState = 'waiting' | 'sent' | 'streaming' | 'ended';

/** What became of a run that all its readers had left. */
export type GraceOutcome = 'returned' | 'expired' | 'ended';

/** A run that this instance carries, for the store. Of a run without a name, there is none. */
export interface CarriedRun {
  /** Something has come of it. */
  wake(): void;
  /** Whether other instances can read it. */
  readonly isShared: boolean;
  /** Asks at once whether it is read at other instances, and tells the run. Never rejects. */
  ask(): Promise<void>;
  /** Stores its end, and what becomes of its name. Resolves when that was tried once. Never rejects. */
  ended(): Promise<void>;
}

export interface RunOptions extends RunStreamOptions {
  readonly id: string;
  /** Undefined if nobody can join it. */
  readonly name: RunName | undefined;
  /** The id of the request that has begun it. */
  readonly requestId: string;
  /** The key of the conversation whose stop drops it; undefined if no stop does. */
  readonly conversation: string | undefined;
  /** Since when its message waits, by `performance.now()` in ms. */
  readonly waitsSince: number;
  /** How long it goes on without a reader, in ms. */
  readonly graceMs: number;
  /** Called when it has ended, and when its last reader is gone after that. */
  readonly onEnd: (run: Run) => void;
  /** Called when it has gone on without readers, and that is over. */
  readonly onGrace: (run: Run, outcome: GraceOutcome) => void;
}

/**
 * One message, its stream, and all who read it here: carried by this instance, or read from the store while another
 * carries it. Only the methods below change its state; each takes its effect before it returns.
 */
export class Run {
  private readonly options: RunOptions;
  /** Both become those of another run if that has the name. */
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
  state: RunState = 'waiting';
  /** Whether it has ever left for the bot service. */
  hasLeft = false;
  /** Whether it may have run, or may run. */
  mayHaveRun = false;
  /** The HTTP status of the service, once it has answered. */
  upstreamStatus: number | undefined;
  /** Whether another instance carries it. */
  isElsewhere = false;
  /** What the store does for it, while this instance carries it; undefined without a name. */
  carried: CarriedRun | undefined;
  /** Resolves when the store was told of its end. */
  stored: Promise<void> = Promise.resolve();
  /** What it has failed with. */
  failure: unknown;
  head: RunHead | undefined;
  readonly readers = new Set<Reader>();
  /** How many look for an event in it, and may read it then. */
  seekers = 0;
  readonly begun = Promise.withResolvers<RunHead>();
  /** Whether it is read at other instances. */
  private isReadElsewhere = false;
  /** Whether a stop came: if the service refuses it, it is not sent again. */
  private isStopped = false;
  private grace: NodeJS.Timeout | undefined;
  /** Bound to the session of the reader that left last, until one comes. */
  private binding: { readonly release: () => void; endedWith: Problem | undefined } | undefined;

  constructor(options: RunOptions) {
    this.options = options;
    this.id = options.id;
    this.requestId = options.requestId;
    this.name = options.name;
    this.conversation = options.conversation;
    this.waitsSince = options.waitsSince;
    this.stream = new RunStream(options);
    // There may be nobody who waits for it.
    this.begun.promise.catch(() => {});
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

  /** It leaves for the bot service. */
  sent(): void {
    this.state = 'sent';
    this.hasLeft = true;
    this.mayHaveRun = true;
  }

  /** The service has refused it: without a reader, it is not sent again. */
  refused(): void {
    if (this.state !== 'sent') return;
    this.state = 'waiting';
    this.mayHaveRun = false;
    if (this.isStopped) this.stop.abort(STOPPED);
    else if (this.readers.size === 0) this.unread();
  }

  /** Its stream begins. */
  begin(head: RunHead): void {
    if (this.state === 'ended') return;
    this.state = 'streaming';
    this.head = head;
    this.carried?.wake();
    this.begun.resolve(head);
  }

  /** It is over; `failure` is what it has failed with before its stream began. The first call decides. */
  end(failure?: unknown): void {
    if (this.state === 'ended') return;
    this.state = 'ended';
    this.failure = failure;
    this.endGrace('ended');
    this.unbind();
    this.begun.reject(failure);
    // No reader waits for ever. After a fault, it is not known whether what was written ends inside an event.
    if (!this.stream.ended) this.stream.endEarly(asProblem(failure), this.stream.hasBegun());
    if (this.carried) this.stored = this.carried.ended();
    this.options.onEnd(this);
  }

  /** A stop of its conversation: what was sent is the service's to stop. Returns whether it was dropped. */
  stopped(): boolean {
    if (this.isElsewhere || this.stop.signal.aborted) return false;
    this.isStopped = true;
    if (this.state === 'waiting') this.stop.abort(STOPPED);
    return this.state === 'waiting';
  }

  /** Another instance has its name: what is stored of that run is what its readers get. */
  becomes(other: { readonly id: string; readonly requestId: string }): void {
    this.isElsewhere = true;
    this.id = other.id;
    this.requestId = other.requestId;
    this.sent();
  }

  /** Other instances read it, up to the offset `upTo`, or do not any more. */
  readElsewhere(isRead: boolean, upTo: number): void {
    const wasRead = this.isReadElsewhere;
    this.isReadElsewhere = isRead;
    this.stream.takenElsewhere(isRead ? upTo : 0);
    if (isRead) this.endGrace('returned');
    else if (wasRead && this.readers.size === 0) this.unread();
  }

  /** A reader is gone; `endedBy` is what has ended it. */
  left(reader: Reader, endedBy?: Problem): void {
    if (!this.readers.delete(reader) || this.readers.size > 0) return;
    if (this.state === 'ended') {
      this.options.onEnd(this);
      return;
    }
    this.bind(reader, endedBy);
    this.unread();
  }

  /** Nobody reads it here. What has ended its last reader ends it: a shutdown for those at other instances, too. */
  unread(): void {
    if (this.readers.size + this.seekers > 0 || this.stop.signal.aborted || this.stream.ended) return;
    if (this.isElsewhere) this.abandon();
    else if (isShutdown(this.binding?.endedWith)) this.stop.abort(this.binding?.endedWith);
    else this.whenAlone(() => this.unreadAnywhere());
  }

  private unreadAnywhere(): void {
    const { endedWith } = this.binding ?? {};
    if (endedWith) this.stop.abort(endedWith);
    else if (!this.mayHaveRun || this.options.graceMs === 0) this.abandon();
    else this.grace ??= setTimeout(() => this.whenAlone(() => this.abandon()), this.options.graceMs);
  }

  /** Calls `act` if nobody reads it. Other instances may have readers that are not known here. */
  private whenAlone(act: () => void): void {
    const ifAlone = () => {
      const isRead = this.readers.size > 0 || this.isReadElsewhere;
      if (!isRead && this.state !== 'ended' && !this.stop.signal.aborted) act();
    };
    if (this.carried?.isShared) void this.carried.ask().then(ifAlone);
    else ifAlone();
  }

  private endGrace(outcome: GraceOutcome): void {
    if (!this.grace) return;
    clearTimeout(this.grace);
    this.grace = undefined;
    this.options.onGrace(this, outcome);
  }

  /** Binds it to the session of the reader that has left last. */
  private bind({ client }: Reader, endedWith: Problem | undefined): void {
    const stop = new AbortController();
    const binding = { release: client.bindToSession(stop), endedWith };
    this.binding = binding;
    const end = () => {
      binding.endedWith = endingOf(stop.signal.reason, this);
      this.unread();
    };
    if (stop.signal.aborted) binding.endedWith ??= endingOf(stop.signal.reason, this);
    else stop.signal.addEventListener('abort', end);
  }

  private unbind(): void {
    this.binding?.release();
    this.binding = undefined;
  }

  /** Nobody wants it any more. */
  abandon(): void {
    if (this.state === 'ended') return;
    this.endGrace('expired');
    this.stop.abort(CLIENT_LEFT);
    this.stream.abandon();
    this.end(CLIENT_LEFT);
  }
}
