import { randomUUID } from 'node:crypto';
import type { HeldBytes } from '../relay/message/held-bytes.ts';
import {
  type JoinedRun,
  joinAt,
  joinWhole,
  type MessageEntry,
  type RunEntry,
  seekEvent,
} from './join-run.ts';
import { KeptRuns } from './kept-runs.ts';
import { type GraceOutcome, Run } from './run.ts';
import { nameAfter } from './run-end.ts';
import type { MessageName, RunName } from './run-name.ts';
import { NOT_KEPT, RUN_OVER, STOPPED } from './run-problems.ts';
import type { RunIds, RunStore, RunTimes } from './run-store.ts';

export interface RunsOptions {
  readonly store: RunStore;
  readonly times: RunTimes & { readonly graceMs: number };
  /** How many bytes of a run are kept. */
  readonly maxBytes: number;
  /** Bounds all logs together. */
  readonly bound: HeldBytes;
  readonly onGrace: (run: Run, outcome: GraceOutcome) => void;
}

/** What the work for a run ends with when another run has its name; `isElsewhere` of the run says so, too. */
const RUN_ELSEWHERE = Symbol('run elsewhere');
/** How many bytes the log of a run without a name keeps. */
const UNNAMED_BYTES = 65_536;

/** The runs of this instance: those that it carries, those of others that its clients read, and kept answers. */
export class Runs {
  /** Whether other instances can read what this one carries. */
  readonly areShared: boolean;
  private readonly options: RunsOptions;
  private readonly store: RunStore;
  /** All that have not ended. */
  private readonly open = new Set<Run>();
  /** By the keys of their names: those that go on, or whose end is not stored yet. */
  private readonly live = new Map<string, Run>();
  private readonly kept: KeptRuns;

  constructor(options: RunsOptions) {
    const { store, bound, times } = options;
    this.options = options;
    this.store = store;
    this.areShared = store.isShared;
    this.kept = new KeptRuns(times.keepMs, bound);
    store.listen((conversation) => void this.stopHere(conversation));
  }

  /**
   * The run of a message: one that goes on, one that is kept, or a new one, which the caller sends (`begun`). With a last event id, it is the rest of a
   * run that has that event here or in the store, else a new one without a name.
   * @throws Problem `run_over`, `run_not_kept` or `session_store_unavailable`; what has ended the client
   */
  async joinOrBegin(entry: MessageEntry): Promise<JoinedRun> {
    const { name, lastEventId } = entry;
    const rest = name && lastEventId !== undefined ? await this.resume(name, entry) : undefined;
    if (rest) return rest;
    if (!name || lastEventId !== undefined) {
      const run = this.newRun(entry, undefined);
      const reader = run.attach(entry.client);
      return { run, reader, at: 0, how: 'begun' };
    }
    return this.joinOrClaim(name, entry);
  }

  /** The newest run of a message id. @throws as `joinOrBegin` */
  async newest(message: MessageName, entry: RunEntry): Promise<JoinedRun> {
    const found = await this.store.newest(message);
    if (found.state === 'over') throw RUN_OVER;
    const { key, id } = found;
    const here = [this.live.get(key), this.kept.get(key)].find((run) => run?.id === id);
    const run = here ?? this.beginToFollow({ ...message, key, outlivesRun: false }, found, entry);
    const isSought = run.isElsewhere && entry.lastEventId !== undefined;
    const joined = isSought ? await this.seek(run, entry) : joinAt(run, entry);
    if (joined) return joined;
    throw run.state === 'ended' && entry.lastEventId === undefined ? RUN_OVER : NOT_KEPT;
  }

  /** Stops the messages of a conversation that have not left, at all instances. Resolves with how many, at least. */
  async stop(conversation: string): Promise<number> {
    const here = this.stopHere(conversation);
    return Math.max(here, await this.store.stop(conversation));
  }

  /** Forgets the names of ended runs of a conversation. */
  async forget(conversation: string): Promise<void> {
    this.kept.forget(conversation);
    await this.store.forget(conversation);
  }

  /** How many bytes all logs take. */
  bytes(): number {
    return this.options.bound.bytes();
  }

  /** Whether this instance carries a run that has not ended. */
  carriesAny(): boolean {
    return [...this.open].some(({ isElsewhere }) => !isElsewhere);
  }

  /**
   * Confirms the name of a run that is about to be sent.
   * @throws Problem `stopped` or `session_store_unavailable`; `RUN_ELSEWHERE` if another run has its name, which its
   *   readers get from now on
   */
  async confirm(run: Run): Promise<void> {
    const { id, name, conversation, waitsSince } = run;
    if (!name && conversation === undefined) return;
    run.stop.signal.throwIfAborted();
    const confirmed = await this.store.confirm({ id, name, conversation, waitsSince });
    run.stop.signal.throwIfAborted();
    if (confirmed === 'confirmed') return;
    if (confirmed === 'stopped') throw STOPPED;
    this.followOther(run, confirmed.other);
    throw RUN_ELSEWHERE;
  }

  /** Joins the run of a name, or begins it. */
  private async joinOrClaim(name: RunName, entry: MessageEntry): Promise<JoinedRun> {
    let live = this.live.get(name.key);
    while (live?.state === 'ended') {
      // After this, the name is free, or the answer is kept.
      await live.stored;
      live = this.live.get(name.key);
    }
    const run = live ?? (await this.keptRun(name));
    return run ? joinWhole(run, entry) : this.claim(name, entry);
  }

  /** Claims a name that is not known here. The run is registered before the store is asked, so that others join it. */
  private async claim(name: RunName, entry: MessageEntry): Promise<JoinedRun> {
    const other = this.live.get(name.key);
    if (other) return this.joinOrClaim(name, entry);
    const run = this.newRun(entry, name);
    const reader = run.attach(entry.client);
    this.live.set(name.key, run);
    let how: JoinedRun['how'] = 'begun';
    try {
      const known = await this.store.claim(name, run);
      if (known.state === 'claimed') this.carry(run);
      else if (known.state === 'live' || known.state === 'kept') {
        how = known.state === 'live' ? 'live' : 'ended';
        this.followOther(run, known);
      } else run.end(RUN_OVER);
    } catch (error) {
      run.end(error);
      // After an error, the name may be claimed all the same: this frees it.
      run.stored = this.store.carry(run).storeEnd();
    }
    return { run, reader, at: 0, how };
  }

  private carry(run: Run): void {
    run.carried = this.store.carry(run);
    // All its readers may have left meanwhile.
    if (run.state === 'ended') run.stored = run.carried.storeEnd();
  }

  /** The run `other` of another instance has the name: the readers of `run` get that. */
  private followOther(run: Run, other: RunIds): void {
    if (run.state === 'ended') return;
    run.follow(other);
    void this.store.follow(run);
  }

  /** Begins to follow a run of another instance. */
  private beginToFollow(name: RunName, found: RunIds, entry: RunEntry): Run {
    const run = this.newRun({ ...entry, conversation: undefined }, name);
    if (!this.live.has(name.key)) this.live.set(name.key, run);
    this.followOther(run, found);
    return run;
  }

  /**
   * The rest of a run after an event; undefined if the event is not here or in the store, or the run ended with a
   * problem.
   */
  private async resume(name: RunName, entry: RunEntry): Promise<JoinedRun | undefined> {
    const here = this.live.get(name.key) ?? (await this.keptRun(name));
    if (here && !here.isElsewhere) return joinAt(here, entry);
    const known = here ?? (await this.store.find(name));
    if (known.state === 'free' || known.state === 'over' || known.state === 'claimed') return undefined;
    return this.seek(known instanceof Run ? known : this.beginToFollow(name, known, entry), entry);
  }

  /** Looks for an event in what is stored of a run of another instance. */
  private async seek(run: Run, entry: RunEntry): Promise<JoinedRun | undefined> {
    run.seekers += 1;
    try {
      return await seekEvent(this.store, run, entry);
    } finally {
      run.seekers -= 1;
      run.checkReaders();
      this.kept.dropUnread(run);
    }
  }

  /** The kept answer of a name, if the store knows it, too: another instance may have forgotten the conversation. */
  private async keptRun(name: RunName): Promise<Run | undefined> {
    const kept = this.kept.get(name.key);
    if (!kept) return undefined;
    const known = await this.store.find(name);
    const isKnown = (known.state === 'kept' || known.state === 'live') && known.id === kept.id;
    if (!isKnown) this.kept.drop(kept);
    return this.kept.has(kept) ? kept : undefined;
  }

  private stopHere(conversation: string): number {
    const ofIt = [...this.open].filter((run) => run.conversation === conversation);
    return ofIt.filter((run) => run.conversationStopped()).length;
  }

  private newRun(
    { requestId, waitsSince, client, conversation }: Omit<MessageEntry, 'name' | 'lastEventId'>,
    name: RunName | undefined,
  ): Run {
    client.stop.signal.throwIfAborted();
    const { times, maxBytes, onGrace } = this.options;
    const bounds = name ? { graceMs: times.graceMs, maxBytes } : { graceMs: 0, maxBytes: UNNAMED_BYTES };
    const run = new Run({
      ...{ id: randomUUID(), name, requestId, conversation, waitsSince, ...bounds },
      ...{ bound: this.kept.bound, onGrace },
      onEnd: (one) => this.onEnd(one),
    });
    this.open.add(run);
    return run;
  }

  /** A run has ended, or its last reader has left after that. */
  private onEnd(run: Run): void {
    const { name } = run;
    if (this.open.delete(run) && name) {
      if (!run.isElsewhere && nameAfter(run) === 'kept') this.kept.keep(name.key, run);
      void run.stored.then(() => {
        if (this.live.get(name.key) === run) this.live.delete(name.key);
      });
    }
    this.kept.dropUnread(run);
  }
}
