import type { CarriedRun, Run } from './run.ts';
import { nameAfter } from './run-end.ts';
import type { MessageName, RunName } from './run-name.ts';
import { RUN_OVER } from './run-problems.ts';
import type { KnownRun, NewestRun, RunIds, RunStore, RunTimes } from './run-store.ts';

/** What is known of one name. */
interface Known {
  readonly name: RunName;
  readonly id: string;
  readonly requestId: string;
  state: 'live' | 'kept' | 'over';
  /** By `performance.now()` in ms. */
  endedAt: number;
}

const MAX_NAMES = 1_000_000;
const OVER = { state: 'over' } as const;

/** Names of runs in the memory of this process. Their answers are kept by the runs themselves. */
export class MemoryRunStore implements RunStore {
  readonly isShared = false;
  private readonly keepMs: number;
  private readonly rememberMs: number;
  private readonly maxNames: number;
  private readonly names = new Map<string, Known>();
  /** The names of ended runs, in the order of their ends. */
  private readonly ended = new Set<Known>();
  private readonly conversations = new Map<string, Set<Known>>();
  private readonly newestOf = new Map<string, Known>();

  constructor({ keepMs, rememberMs }: RunTimes, maxNames = MAX_NAMES) {
    this.keepMs = keepMs;
    this.rememberMs = rememberMs;
    this.maxNames = maxNames;
  }

  async claim(name: RunName, { id, requestId }: RunIds): Promise<KnownRun> {
    this.sweep();
    const known = this.names.get(name.key);
    if (known) return this.describe(known);
    const added: Known = { name, id, requestId, state: 'live', endedAt: 0 };
    this.names.set(name.key, added);
    if (name.message !== undefined) this.newestOf.set(name.message, added);
    const others = this.conversations.get(name.conversation) ?? new Set();
    this.conversations.set(name.conversation, others.add(added));
    return { state: 'claimed' };
  }

  async find({ key }: RunName): Promise<KnownRun> {
    this.sweep();
    const known = this.names.get(key);
    return known ? this.describe(known) : { state: 'free' };
  }

  async newest({ message }: MessageName): Promise<NewestRun> {
    this.sweep();
    const known = this.newestOf.get(message);
    const found = known ? this.describe(known) : OVER;
    return known && found.state !== 'over' ? { ...found, key: known.name.key } : OVER;
  }

  async confirm(): Promise<'confirmed'> {
    return 'confirmed';
  }

  carry(run: Run): CarriedRun {
    return { isShared: false, wake() {}, async askForReaders() {}, storeEnd: async () => this.end(run) };
  }

  /** There is no other instance: its run was here, and the answer is not kept any more. */
  async follow(run: Run): Promise<void> {
    run.end(RUN_OVER);
  }

  /** All that wait are runs of this process, which counts them itself. */
  async stop(): Promise<number> {
    return 0;
  }

  async forget(conversation: string): Promise<void> {
    const known = [...(this.conversations.get(conversation) ?? [])];
    for (const one of known) if (one.state !== 'live') this.remove(one);
  }

  listen(): void {}

  async close(): Promise<void> {}

  private describe({ id, requestId, state, endedAt }: Known) {
    const isKept = state === 'kept' && performance.now() < endedAt + this.keepMs;
    return state === 'live' || isKept ? { state, id, requestId } : OVER;
  }

  private end(run: Run): void {
    const known = this.names.get(run.name?.key ?? '');
    if (known?.id !== run.id) return;
    const after = nameAfter(run);
    if (after === 'free') {
      this.remove(known);
      return;
    }
    known.state = after;
    known.endedAt = performance.now();
    this.ended.add(known);
  }

  private remove(known: Known): void {
    const { key, conversation, message = '' } = known.name;
    this.ended.delete(known);
    if (this.names.get(key) === known) this.names.delete(key);
    if (this.newestOf.get(message) === known) this.newestOf.delete(message);
    const others = this.conversations.get(conversation);
    others?.delete(known);
    if (others?.size === 0) this.conversations.delete(conversation);
  }

  /** Forgets names that were remembered for long enough, and the oldest ones if there are too many. */
  private sweep(): void {
    const before = performance.now() - this.keepMs - this.rememberMs;
    for (const known of this.ended) {
      if (known.endedAt > before && this.names.size < this.maxNames) return;
      this.remove(known);
    }
  }
}
