import { Problem } from '../errors.ts';
import type { StreamSink } from '../relay/message/response-sink.ts';
import { failureOf, problemForReader } from './run-problems.ts';
import type { RunStream, StreamReader } from './run-stream.ts';

/** The headers with which the stream of a run begins. */
export type RunHead = ReadonlyMap<string, string>;

/** One request that waits for the stream of a run, or reads it. */
export interface ReaderClient {
  /**
   * Aborted with a Problem, it ends this client's stream with that problem; any other reason means that the client has
   * left.
   */
  readonly stop: AbortController;
  /** Lets the end of this client's session, or a shutdown, abort `stop`. Returns what undoes it. */
  readonly bindToSession: (stop: AbortController) => () => void;
}

/** What a reader needs of its run. */
interface ReadRun {
  readonly stream: RunStream;
  readonly streamBegun: { readonly promise: Promise<RunHead> };
  readonly readers: Set<Reader>;
  readonly mayHaveRun: boolean;
  left(reader: Reader, endedBy?: Problem): void;
}

/** How many readers one run has at most. */
const MAX_READERS = 64;
const TOO_MANY = new Problem('too_many_streams', `This answer has ${MAX_READERS} newer readers.`, {
  retryable: false,
});

/** One client of a run. */
export class Reader {
  readonly client: ReaderClient;
  private readonly run: ReadRun;
  private reading: StreamReader | undefined;
  private readonly aborted = Promise.withResolvers<never>();

  constructor(run: ReadRun, client: ReaderClient) {
    this.run = run;
    this.client = client;
    // No unhandled rejection if nothing waits for it.
    this.aborted.promise.catch(() => {});
    client.stop.signal.addEventListener('abort', this.onAbort, { once: true });
  }

  /**
   * The headers with which the stream begins. Rejects with what the message has failed with, or what ended this client.
   */
  head(): Promise<RunHead> {
    return Promise.race([this.run.streamBegun.promise, this.aborted.promise]);
  }

  /** Gives the stream from the offset `at` on to `sink`. Resolves when that has closed. */
  read(sink: StreamSink, at: number): Promise<void> {
    const { signal } = this.client.stop;
    return new Promise((resolve) => {
      if (signal.aborted && !(signal.reason instanceof Problem)) return resolve();
      this.reading = this.run.stream.read(sink, at, resolve);
      if (signal.aborted && !this.reading.hasEnd) this.reading.end(problemForReader(signal.reason, this.run));
    });
  }

  /** The client is gone. May be called again. */
  leave(): void {
    this.client.stop.signal.removeEventListener('abort', this.onAbort);
    this.run.left(this);
  }

  private readonly onAbort = () => {
    const { run, client, reading } = this;
    const { reason } = client.stop.signal;
    this.aborted.reject(failureOf(reason, run));
    const problem = reason instanceof Problem ? problemForReader(reason, run) : undefined;
    const hadEnd = reading?.hasEnd;
    // Ended for too many newer readers, it counts as left; any other problem of the last reader ends the run.
    run.left(this, reason === TOO_MANY_OF_USER ? undefined : problem);
    // Bytes of an ended stream that the client has not taken are in no bound: its connection is cut.
    if (problem && hadEnd) reading?.cut(problem);
    else if (problem && !reading?.hasEnd) reading?.end(problem);
  };
}

/** Adds a reader to a run; the oldest one ends if there are too many. */
export function attach(run: ReadRun, client: ReaderClient): Reader {
  const [oldest] = run.readers;
  if (oldest && run.readers.size >= MAX_READERS) oldest.client.stop.abort(TOO_MANY);
  const reader = new Reader(run, client);
  run.readers.add(reader);
  return reader;
}

/** Bounds how many runs of other requests a user reads at this instance. */
export interface UserReaders {
  /** Counts a reader, and ends the user's oldest one if there are too many. Returns what no longer counts it. */
  add(userId: string, stop: AbortController): () => void;
}

/** As many as four runs can have: more than all pages of one person need. */
export const MAX_READERS_PER_USER = 256;
/** Ends a reader. If it is the last of its run, the run goes on as if the client had left. */
export const TOO_MANY_OF_USER = new Problem(
  'too_many_streams',
  `This user has ${MAX_READERS_PER_USER} newer readers of answers.`,
  { retryable: false },
);

/** Makes the bound of this instance. */
export function userReaders(): UserReaders {
  const users = new Map<string, Set<AbortController>>();
  return {
    add(userId, stop) {
      const readers = users.get(userId) ?? new Set();
      users.set(userId, readers.add(stop));
      const [oldest] = readers;
      const release = (one: AbortController) => {
        readers.delete(one);
        if (readers.size === 0 && users.get(userId) === readers) users.delete(userId);
      };
      if (oldest && readers.size > MAX_READERS_PER_USER) {
        release(oldest);
        oldest.abort(TOO_MANY_OF_USER);
      }
      return () => release(stop);
    },
  };
}
