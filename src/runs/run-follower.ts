import { setImmediate } from 'node:timers/promises';
import { asProblem, type Problem } from '../errors.ts';
import type { RedisScript } from '../storage/redis.ts';
import type { Run } from './run.ts';
import type { RunCodec, StoredEnd } from './run-codec.ts';
import { namesKey } from './run-lua.ts';
import type { RunName } from './run-name.ts';
import { Bell, type RunNews } from './run-news.ts';
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
/** The state of the name may also be `gone`, or `other` if another run has it. */
type Reply = readonly [
  state: 'c' | 's' | 'k' | 'o' | 'gone' | 'other',
  leaseMs: number,
  closed: string,
  end: string,
  head: string,
  entries: readonly Entry[],
];

/** How many entries are read at once. */
const ENTRIES = 64;

/** Writes into a run of this instance what is stored of it by the one that carries it, in one loop. */
export class RunFollower {
  readonly run: Run;
  private readonly options: FollowerOptions;
  private readonly name: RunName;
  /** The offset up to which it was read. */
  private at = 0;
  private isInside = false;
  private isFull = false;
  private readonly bell = new Bell();
  private asking: (() => void)[] = [];
  /** By `performance.now()` in ms: since when Redis fails, when it last has, and since when the name is gone. */
  private failingSince: number | undefined;
  private failedAt = Number.NEGATIVE_INFINITY;
  private goneSince: number | undefined;

  constructor(run: Run, name: RunName, options: FollowerOptions) {
    this.run = run;
    this.name = name;
    this.options = options;
  }

  /** Resolves when all is there that is stored now, or when Redis fails. Never rejects. */
  caughtUp(): Promise<void> {
    if (this.isOver()) return Promise.resolve();
    this.bell.ring();
    return new Promise((resolve) => this.asking.push(resolve));
  }

  /** Reads until the end. Never rejects. */
  async follow(): Promise<void> {
    const { run, bell, options } = this;
    const { id } = run;
    const { signal } = run.stop;
    const ring = () => bell.ring();
    options.news.add(id, bell);
    signal.addEventListener('abort', ring);
    while (!this.isOver()) {
      const asking = this.asking.splice(0);
      const hasMore = await this.look(asking.length > 0).catch((failure) => this.endWith(failure));
      if (hasMore) this.asking.unshift(...asking);
      else for (const answer of asking) answer();
      if (!hasMore && !this.isOver()) await bell.wait(options.leases.lookMs);
    }
    // Nobody reads it here any more. Who was ended while the name was claimed hears now that the message was sent.
    run.end(failureOf(signal.reason, run));
    for (const answer of this.asking) answer();
    signal.removeEventListener('abort', ring);
    options.news.remove(id, bell);
    options.codec.forget(id);
  }

  private isOver(): boolean {
    return this.run.state === 'ended' || this.run.stop.signal.aborted;
  }

  /** Reads what has come, whoever can take it if `isWanted`. Returns whether there is more. @throws what ends the run */
  private async look(isWanted: boolean): Promise<boolean> {
    const { name, run, options, at } = this;
    const { followedMs } = options.leases;
    // Who can take no more now still follows the run.
    const count = this.isFull && !isWanted ? 0 : ENTRIES;
    const args = [name.key, '', run.id, '', String(at), String(count), String(followedMs)];
    let reply: Reply;
    try {
      reply = (await options.read([namesKey(name.conversation)], args)) as Reply;
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
      // Its readers come before the first bytes.
      await setImmediate();
    }
    return this.take(reply, isWanted);
  }

  private failed(): void {
    this.failedAt = performance.now();
    this.failingSince ??= this.failedAt;
    if (this.failedAt - this.failingSince > this.options.leases.failingMs) throw RUN_LOST;
  }

  private take(reply: Reply, isWanted: boolean): boolean {
    const entries = reply[5];
    for (const entry of this.run.head ? entries : []) {
      // The rest is read again when there is room.
      if (this.isOver() || (this.isFull && !isWanted)) return false;
      this.takeEntry(entry);
    }
    if (this.isOver()) return false;
    if (this.run.head && entries.length === ENTRIES) return true;
    this.settle(reply);
    return false;
  }

  /** The log has forgotten what comes before `from`. Who resumes may not need that, and nobody else reads it yet. */
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
    run.begin(new Map(stored.head));
    run.stream.open({
      full: () => {
        this.isFull = true;
      },
      drained: () => {
        if (this.isFull) this.bell.ring();
        this.isFull = false;
      },
      mayBeat: () => !this.isInside,
      closed() {},
    });
    this.isFull = run.stream.isFull();
  }

  private takeEntry([id, fields]: Entry): void {
    const [, , , inside, , data = ''] = fields;
    const bytes = this.options.codec.openBytes(data, this.run.id, this.at);
    if (!bytes) throw RUN_LOST;
    this.at = Number.parseInt(id, 10);
    this.isInside = inside !== '';
    this.run.stream.write(bytes, this.isInside);
  }

  /** All that is stored is there. */
  private settle([state, leaseMs, closed, end]: Reply): void {
    const now = performance.now();
    this.goneSince = state === 'gone' ? (this.goneSince ?? now) : undefined;
    if (end !== '') this.takeEnd(this.options.codec.openEnd(end, this.run.id));
    else if (closed !== '') throw this.unstored();
    else if (state === 'other') throw this.run.head ? RUN_LOST : NAME_IS_FREE;
    else if (state === 'k' || state === 'o') throw this.run.head ? RUN_LOST : RUN_OVER;
    else if (this.goneSince !== undefined) {
      // It may be Redis that has lost it: the one who carries the run puts it back in a moment.
      const isFree = now - this.goneSince > 2 * this.options.leases.renewMs;
      if (isFree) throw this.run.head ? RUN_LOST : NAME_IS_FREE;
    } else if (leaseMs <= 0 && now - this.failedAt > this.options.leases.calmMs) {
      // After a failure of Redis, leases are renewed in a moment.
      throw RUN_LOST;
    }
  }

  private takeEnd(end: StoredEnd | undefined): void {
    const { run, at } = this;
    if (!end) throw RUN_LOST;
    run.hasLeft = end.hasLeft;
    run.mayHaveRun = end.mayHaveRun;
    run.upstreamStatus = end.upstreamStatus;
    for (const [name, value] of end.headers) run.headers.set(name, value);
    if (end.isFree) throw NAME_IS_FREE;
    if (at !== end.at || (!end.problem && !run.head)) throw this.unstored();
    if (end.problem) this.endWith(end.problem, end.isCut);
    else {
      run.stream.complete();
      run.end();
    }
  }

  /** The rest is not stored: Redis had no room for it, or has lost what came before it. */
  private unstored(): Problem {
    return this.at === 0 ? NOT_KEPT : RUN_LOST;
  }

  private endWith(failure: unknown, isCut = this.isInside): void {
    const { run } = this;
    if (run.head) run.stream.endEarly(asProblem(failure), isCut);
    run.end(failure);
  }
}
