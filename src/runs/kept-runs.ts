import type { HeldBytes } from '../relay/message/held-bytes.ts';
import type { Run } from './run.ts';
import type { LogBytes } from './run-log.ts';

/** The answers of ended runs that are kept here, each for a time, or until a live run needs their memory. */
export class KeptRuns {
  /** What bounds the logs of all runs together. */
  readonly bound: LogBytes;
  private readonly keepMs: number;
  /** By the keys of their names, the oldest first. */
  private readonly runs = new Map<string, Run>();

  /** `keepMs` is in ms; 0 keeps nothing. `held` counts the bytes of all logs. */
  constructor(keepMs: number, held: HeldBytes) {
    this.keepMs = keepMs;
    this.bound = {
      release: held.release,
      take: (bytes) => {
        while (!held.take(bytes)) if (!this.dropOldest()) return false;
        return true;
      },
    };
  }

  keep(key: string, run: Run): void {
    if (this.keepMs === 0) return;
    const old = this.runs.get(key);
    if (old) this.drop(old);
    this.runs.set(key, run);
    setTimeout(() => this.drop(run), this.keepMs).unref();
  }

  get(key: string): Run | undefined {
    return this.runs.get(key);
  }

  has(run: Run): boolean {
    return run.name !== undefined && this.runs.get(run.name.key) === run;
  }

  /** Keeps the answer no longer. Its readers still get all of it. */
  drop(run: Run): void {
    if (!run.name || !this.has(run)) return;
    this.runs.delete(run.name.key);
    this.dropUnread(run);
  }

  /** Frees the log of a run that has ended, unless it is kept, or a client reads it or looks for an event in it. */
  dropUnread(run: Run): void {
    const isInUse = run.state !== 'ended' || run.readers.size + run.seekers > 0;
    if (!isInUse && !this.has(run)) run.stream.log.drop();
  }

  forget(conversation: string): void {
    for (const run of this.runs.values()) if (run.name?.conversation === conversation) this.drop(run);
  }

  private dropOldest(): boolean {
    const [oldest] = this.runs.values();
    if (oldest) this.drop(oldest);
    return oldest !== undefined;
  }
}
