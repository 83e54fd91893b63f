import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisScript } from '../storage/redis.ts';
import type { CarriedRun, Run } from './run.ts';
import type { RunCodec } from './run-codec.ts';
import { nameAfter, storedEnd } from './run-end.ts';
import type { LogBytes } from './run-log.ts';
import { appendArguments, namesKey } from './run-lua.ts';
import type { RunName } from './run-name.ts';
import { type RunNews, Waker } from './run-news.ts';
import { knownMs, type RunLeases, type RunTimes } from './run-store.ts';

export interface WriterOptions {
  readonly append: RedisScript;
  readonly codec: RunCodec;
  readonly times: RunTimes;
  readonly leases: RunLeases;
  readonly news: RunNews;
  /** How many bytes of a run are stored. */
  readonly maxBytes: number;
  /** Bounds what waits to be stored of runs that have ended. */
  readonly waiting: LogBytes;
  /** Whether Redis has no room for logs. */
  readonly isRedisFull: () => Promise<boolean>;
}

/** Some bytes of the stream, sealed. */
interface Batch {
  readonly from: number;
  readonly to: number;
  readonly isInside: boolean;
  readonly data: string;
}

interface PendingEnd {
  readonly sealed: string;
  readonly nameAfter: ReturnType<typeof nameAfter>;
  readonly since: number;
  readonly waitingBytes: number;
}

/** The most bytes of a batch: while Redis takes in a large one, all other commands wait. */
const BATCH_BYTES = 65_536;

/** Stores the stream of a run that this instance carries, in one loop, until its end is stored. */
export class RunWriter implements CarriedRun {
  readonly isShared = true;
  private readonly run: Run;
  private readonly options: WriterOptions;
  private readonly name: RunName;
  /** A copy, since the run's own id changes when it follows another run. */
  private readonly id: string;
  private readonly request: string;
  private readonly batchBytes: number;
  private head = '';
  /** The batches that may not be stored yet: one without an answer is sent again unchanged. */
  private batches: Batch[] = [];
  /** The offsets up to which batches were made, and up to which they are stored. */
  private batchedTo = 0;
  private storedTo = 0;
  /** Whether nothing more of the stream is stored: it would have a gap. */
  private isClosed = false;
  private isFollowed = false;
  private followedUntil = 0;
  private ending: PendingEnd | undefined;
  private isOver = false;
  private readonly waker = new Waker();
  /** The calls of `askForReaders` that are not answered. */
  private asking: (() => void)[] = [];

  constructor(run: Run, name: RunName, options: WriterOptions) {
    this.run = run;
    this.options = options;
    this.name = name;
    this.id = run.id;
    this.request = options.codec.sealRequest(run.requestId, run.id);
    this.batchBytes = Math.min(BATCH_BYTES, Math.ceil(options.maxBytes / 4));
  }

  wake(): void {
    if (this.isFollowed) this.waker.wake();
  }

  askForReaders(): Promise<void> {
    if (this.isOver) return Promise.resolve();
    this.waker.wake();
    return new Promise((resolve) => this.asking.push(resolve));
  }

  storeEnd(): Promise<void> {
    if (this.run.isElsewhere || this.isOver) return Promise.resolve();
    // All at once: the log of a run that has ended may be dropped.
    this.makeBatches(true);
    const { waiting, codec } = this.options;
    const bytes = this.batches.reduce((sum, { data }) => sum + data.length, 0);
    const hasRoom = waiting.take(bytes);
    if (!hasRoom) this.close();
    const sealed = codec.sealEnd(storedEnd(this.run), this.id);
    this.ending = {
      ...{ sealed, nameAfter: nameAfter(this.run), since: performance.now() },
      waitingBytes: hasRoom ? bytes : 0,
    };
    return this.askForReaders();
  }

  /** Stores what comes until the end is stored. Never rejects. */
  async writeUntilEnd(): Promise<void> {
    const { news, leases, codec, waiting } = this.options;
    news.add(`?${this.id}`, this.waker);
    let hasFailed = false;
    for (let triedAt = Number.NEGATIVE_INFINITY; !this.isOver; ) {
      await this.waker.wait(leases.renewMs);
      const pauseMs = triedAt + (hasFailed ? leases.renewMs : leases.batchMs) - performance.now();
      if (pauseMs > 0) await sleep(pauseMs, undefined, { ref: false });
      // Another run has the name.
      if (this.run.isElsewhere) break;
      triedAt = performance.now();
      const asking = this.asking.splice(0);
      hasFailed = await this.append().then(
        () => false,
        () => true,
      );
      if (hasFailed) this.failed();
      for (const answer of asking) answer();
    }
    this.isOver = true;
    for (const answer of this.asking) answer();
    this.run.stream.onWrite = undefined;
    waiting.release(this.ending?.waitingBytes ?? 0);
    news.remove(`?${this.id}`, this.waker);
    codec.forget(this.id);
  }

  /** Stores all that has come by now, and renews the lease. */
  private async append(): Promise<void> {
    const { log } = this.run.stream;
    const upTo = log.end;
    do {
      if (!this.isClosed && (await this.options.isRedisFull())) this.close();
      this.makeBatches(false);
      const [batch] = this.batches;
      const ending = this.batches.length <= 1 ? this.ending : undefined;
      const reply = await this.options.append(
        [namesKey(this.name.conversation)],
        this.argumentsFor(batch, ending),
      );
      const [state, followedMs] = reply as [state: 'stored' | 'closed' | 'lost', followedMs: number];
      if (state !== 'stored') this.close();
      else if (batch) this.storedTo = batch.to;
      if (batch && this.batches[0] === batch) this.batches.shift();
      if (ending) this.isOver = true;
      this.noteReaders(state === 'stored' ? followedMs : 0);
    } while (!this.isOver && (this.ending || (!this.isClosed && this.storedTo < upTo)));
  }

  private argumentsFor(batch: Batch | undefined, ending: PendingEnd | undefined): string[] {
    const { name, id, request, options, isClosed, batchedTo } = this;
    const { times, leases, codec, maxBytes } = options;
    const { hasLeft, head, headers } = this.run;
    const { from = batchedTo, to = batchedTo, isInside = false, data = '' } = batch ?? {};
    if (head && this.head === '') {
      this.head = codec.sealHead({ head: [...head], headers: [...headers] }, id);
    }
    return appendArguments([name.key, name.message ?? '', id, request], {
      state: hasLeft ? 's' : 'c',
      ms: knownMs(times, hasLeft && name.outlivesRun),
      lease: leases.leaseMs,
      life: times.maxWaitMs + times.maxExecutionMs,
      ...{ from, to, inside: isInside ? 'inside' : '', data },
      // Sent with each batch until the first one is stored, since Redis may lose it before that.
      head: from === 0 ? this.head : '',
      closing: isClosed ? 'closed' : '',
      bytes: maxBytes - this.batchBytes,
      ...{ after: ending?.nameAfter ?? '', last: ending?.sealed ?? '' },
      ...{ keep: times.keepMs, remember: times.rememberMs },
    });
  }

  /** Makes the next batch, or all of them. It closes the stored log if the run's own log has dropped what comes next. */
  private makeBatches(all: boolean): void {
    const { log } = this.run.stream;
    if (log.start > this.batchedTo && !this.ending) this.close();
    while (!this.isClosed && !this.ending && this.batchedTo < log.end && (all || this.batches.length === 0)) {
      const from = this.batchedTo;
      const parts: Buffer[] = [];
      let isInside = false;
      let length = 0;
      for (let part = log.read(from); part && length < this.batchBytes; part = log.read(from + length)) {
        const bytes = part.bytes.subarray(0, this.batchBytes - length);
        isInside = part.isInside || bytes.length < part.bytes.length;
        parts.push(bytes);
        length += bytes.length;
      }
      let bytes = Buffer.concat(parts);
      const whole = isInside ? wholeEvents(bytes) : 0;
      if (whole > 0) {
        bytes = bytes.subarray(0, whole);
        isInside = false;
      }
      const data = this.options.codec.sealBytes(bytes, this.id, from);
      this.batchedTo = from + bytes.length;
      this.batches.push({ from, to: this.batchedTo, isInside, data });
    }
  }

  private close(): void {
    this.isClosed = true;
    this.batches = [];
  }

  /** For so long, the run counts as followed by other instances; 0 if it is not. */
  private noteReaders(ms: number): void {
    const { run, waker } = this;
    this.isFollowed = ms > 0;
    this.followedUntil = performance.now() + ms;
    run.stream.onWrite = this.isFollowed ? () => waker.wake() : undefined;
    if (run.state !== 'ended') run.readElsewhere(this.isFollowed, this.storedTo);
  }

  /** Redis has failed. The run counts as followed for no longer than Redis said last: followers need Redis, too. */
  private failed(): void {
    const now = performance.now();
    if (this.isFollowed && now > this.followedUntil) this.noteReaders(0);
    if (this.ending && now - this.ending.since > this.options.leases.endingMs) this.isOver = true;
  }
}

/**
 * Where the last event ends in some bytes of a stream; 0 if it is not known. A stored log that ends between two events
 * lets its readers end with an error event if no more comes.
 */
function wholeEvents(bytes: Buffer): number {
  return Math.max(
    ...['\n\n', '\r\n\r\n'].map((end) => {
      const at = bytes.lastIndexOf(end);
      return at < 0 ? 0 : at + end.length;
    }),
  );
}
