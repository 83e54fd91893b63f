import { setImmediate } from 'node:timers/promises';
import { asProblem, type Problem } from '../errors.ts';
import type { RedisScript } from '../storage/redis.ts';
import type { Run, RunPhase } from './run.ts';
import type { RunCodec, StoredEnd } from './run-codec.ts';
import { namesKey } from './run-lua.ts';
import type { RunName } from './run-name.ts';
import { type RunNews, Waker } from './run-news.ts';
import { failureOf, NAME_IS_FREE, NOT_KEPT, RUN_LOST, RUN_OVER, TOO_SLOW } from './run-problems.ts';
import type { RunLeases } from './run-store.ts';

export interface FollowerOptions {
  readonly read: RedisScript;
  readonly codec: RunCodec;
  readonly leases: RunLeases;
  readonly news: RunNews;
}

/** An entry of a log: the offset of its end, and its fields and values in turn. */
type Entry = readonly [id: string, fields: readonly string[]];
/** The state of a name, as the scripts have it; `gone` if it is not known, `other` if another run has it. */
type NameState = 'c' | 's' | 'k' | 'o' | 'gone' | 'other';
type ReadReply = readonly [
  state: NameState,
  leaseMs: number,
  closed: string,
  end: string,
  head: string,
  entries: readonly Entry[],
];

/** How many entries are read at once. */
const ENTRIES = 64;

/** With what a run ends whose stream has not begun and of which no more is stored, by the state of its name. */
const LOST_AS: Readonly<Record<NameState, Problem>> = {
  ...{ c: RUN_LOST, s: RUN_LOST, k: RUN_OVER, o: RUN_OVER },
  ...{ gone: NAME_IS_FREE, other: NAME_IS_FREE },
};

/** Follows a run that another instance carries: reads what is stored of it, in one loop, into a run of this instance. */
export class RunFollower {
  readonly run: Run;
  private readonly options: FollowerOptions;
  private readonly name: RunName;
  /** The offset up to which it was read, and whether that is inside an event. */
  private at = 0;
  private isInside = false;
  /** How far the run had come when it ended at the other instance. */
  private endedIn: RunPhase | undefined;
  /** Whether no reader here can take more. */
  private isPaused = false;
  private readonly waker = new Waker();
  /** The calls of `catchUp` that are not answered. */
  private asking: (() => void)[] = [];
  /** By `performance.now()` in ms: since when Redis fails, when it last failed, and since when the name is gone. */
  private failingSince: number | undefined;
  private failedAt = Number.NEGATIVE_INFINITY;
  private goneSince: number | undefined;

  constructor(run: Run, name: RunName, options: FollowerOptions) {
    this.run = run;
    this.name = name;
    this.options = options;
  }

  /** Resolves when the run has all that is stored now, or when Redis fails. Never rejects. */
  catchUp(): Promise<void> {
    if (this.isOver()) return Promise.resolve();
    this.waker.wake();
    return new Promise((resolve) => this.asking.push(resolve));
  }

  /** Reads until the run has ended here or there. Never rejects. */
  async readUntilEnd(): Promise<void> {
    const { run, waker, options } = this;
    const { id } = run;
    const { signal } = run.stop;
    const wake = () => waker.wake();
    options.news.add(id, waker);
    signal.addEventListener('abort', wake);
    while (!this.isOver()) {
      const asking = this.asking.splice(0);
      const hasMore = await this.poll(asking.length > 0).catch((failure) => this.endWith(failure));
      if (hasMore) this.asking.unshift(...asking);
      else for (const answer of asking) answer();
      if (!hasMore && !this.isOver()) await waker.wait(options.leases.pollMs);
    }
    // If its last reader here is gone, or a problem has ended it: then it may have run at the other instance.
    run.end(failureOf(signal.reason, run));
    for (const answer of this.asking) answer();
    signal.removeEventListener('abort', wake);
    options.news.remove(id, waker);
    options.codec.forget(id);
  }

  private isOver(): boolean {
    return this.run.state === 'ended' || this.run.stop.signal.aborted;
  }

  /**
   * Reads what is new; with `isWanted` also while no reader can take more. Returns whether there is more. @throws what
   * ends the run
   */
  private async poll(isWanted: boolean): Promise<boolean> {
    const { name, run, options, at } = this;
    const { followedMs } = options.leases;
    // With 0, it only tells the other instance that the run is still followed.
    const count = this.isPaused && !isWanted ? 0 : ENTRIES;
    const args = [name.key, '', run.id, '', String(at), String(count), String(followedMs)];
    let reply: ReadReply;
    try {
      reply = (await options.read([namesKey(name.conversation)], args)) as ReadReply;
    } catch {
      this.failed();
      return false;
    }
    this.failingSince = undefined;
    if (this.isOver() || count === 0) return false;
    const [, , closed, end, head, entries] = reply;
    this.skipTo(Number(entries[0]?.[1][1] ?? this.at), end !== '');
    if (!run.head && head !== '' && closed === '') {
      this.begin(head);
      // The readers that wait attach before the first bytes.
      await setImmediate();
    }
    return this.take(reply, isWanted);
  }

  private failed(): void {
    this.failedAt = performance.now();
    this.failingSince ??= this.failedAt;
    if (this.failedAt - this.failingSince > this.options.leases.failingMs) throw RUN_LOST;
  }

  private take(reply: ReadReply, isWanted: boolean): boolean {
    const entries = reply[5];
    for (const entry of this.run.head ? entries : []) {
      // The rest is read again when a reader can take more.
      if (this.isOver() || (this.isPaused && !isWanted)) return false;
      this.takeEntry(entry);
    }
    if (this.isOver()) return false;
    if (this.run.head && entries.length === ENTRIES) return true;
    this.endIfOver(reply);
    return false;
  }

  /** The stored log begins at `from`. That is enough only for clients that look for an event in it. */
  private skipTo(from: number, hasEnded: boolean): void {
    const { run, at } = this;
    if (from === at) return;
    if (at > 0) throw TOO_SLOW;
    if (run.readers.size > 0) throw hasEnded ? RUN_OVER : NOT_KEPT;
    run.stream.log.startAt(from);
    this.at = from;
  }

  private begin(sealed: string): void {
    const { run, options } = this;
    const stored = options.codec.openHead(sealed, run.id);
    if (!stored) throw RUN_LOST;
    for (const [name, value] of stored.headers) run.headers.set(name, value);
    run.beginStream(new Map(stored.head));
    run.stream.open({
      full: () => {
        this.isPaused = true;
      },
      drained: () => {
        if (this.isPaused) this.waker.wake();
        this.isPaused = false;
      },
      mayBeat: () => !this.isInside,
      closed() {},
    });
    this.isPaused = run.stream.isFull();
  }

  private takeEntry([id, fields]: Entry): void {
    const [, , , inside, , data = ''] = fields;
    const bytes = this.options.codec.openBytes(data, this.run.id, this.at);
    if (!bytes) throw RUN_LOST;
    this.at = Number.parseInt(id, 10);
    this.isInside = inside !== '';
    this.run.stream.write(bytes, this.isInside);
  }

  /** Ends the run if all that is stored has been read, and no more will come. @throws what ends it early */
  private endIfOver([state, leaseMs, closed, end]: ReadReply): void {
    const { run, options } = this;
    if (end !== '') this.takeEnd(options.codec.openEnd(end, run.id));
    else if (closed !== '') throw this.missingRest();
    else if (this.isLost(state, leaseMs)) throw run.head ? RUN_LOST : LOST_AS[state];
  }

  /** Whether no instance stores more of the run, though it has no end. */
  private isLost(state: NameState, leaseMs: number): boolean {
    const now = performance.now();
    const { calmMs, renewMs } = this.options.leases;
    this.goneSince = state === 'gone' ? (this.goneSince ?? now) : undefined;
    // If Redis has lost the name, the instance that carries the run puts it back with its next renewal.
    if (this.goneSince !== undefined) return now - this.goneSince > 2 * renewMs;
    if (state !== 'c' && state !== 's') return true;
    // After a failure of Redis, leases that have run out are renewed soon.
    return leaseMs <= 0 && now - this.failedAt > calmMs;
  }

  private takeEnd(end: StoredEnd | undefined): void {
    const { run, at } = this;
    if (!end) throw RUN_LOST;
    this.endedIn = end.phase;
    run.upstreamStatus = end.upstreamStatus;
    for (const [name, value] of end.headers) run.headers.set(name, value);
    if (end.isFree) throw NAME_IS_FREE;
    if (at !== end.at || (!end.problem && !run.head)) throw this.missingRest();
    if (end.problem) this.endWith(end.problem, end.isCut);
    else {
      run.stream.complete();
      run.end(undefined, end.phase);
    }
  }

  /** What ends a run of which the rest is not stored: Redis had no room for it, or has lost what came before. */
  private missingRest(): Problem {
    return this.at === 0 ? NOT_KEPT : RUN_LOST;
  }

  private endWith(failure: unknown, isCut = this.isInside): void {
    const { run } = this;
    if (run.head) run.stream.endEarly(asProblem(failure), isCut);
    run.end(failure, this.endedIn);
  }
}
