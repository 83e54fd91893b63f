import type { Run } from '../../../src/runs/run.ts';
import type { RunName } from '../../../src/runs/run-name.ts';
import type { Confirmed, RunStore } from '../../../src/runs/run-store.ts';
import { until } from '../clock/until.ts';
import { type RecordingSink, readerOf } from './recording-sink.ts';
import { runOf } from './run-stores.ts';

/** A run that has claimed its name in `store`, which carries it. */
export async function claimedRun(
  store: RunStore,
  name: RunName,
  changes?: Parameters<typeof runOf>[1],
): Promise<Run> {
  const run = runOf(name, changes);
  const { state } = await store.claim(name, run);
  if (state !== 'claimed') throw new Error(`the name is ${state}`);
  run.carried = store.carry(run);
  return run;
}

export function confirm(store: RunStore, run: Run): Promise<Confirmed> {
  const { id, name, conversation, waitsSince } = run;
  return store.confirm({ id, name, conversation, waitsSince });
}

/** A run that was sent. */
export async function sentRun(...of: Parameters<typeof claimedRun>): Promise<Run> {
  const run = await claimedRun(...of);
  const confirmed = await confirm(of[0], run);
  if (confirmed !== 'confirmed') throw new Error(`the run is ${JSON.stringify(confirmed)}`);
  run.sent();
  return run;
}

/** A run whose stream has begun. */
export async function begunRun(...of: Parameters<typeof claimedRun>): Promise<Run> {
  const run = await sentRun(...of);
  run.headers.set('x-request', 'one');
  run.beginStream(new Map([['content-type', 'text/event-stream']]));
  return run;
}

/** Bytes of the run's stream. */
export function say(run: Run, text: string): void {
  run.stream.write(Buffer.from(text), !text.endsWith('\n\n'));
}

/** Ends the run as complete. */
export function complete(run: Run): Promise<void> {
  run.stream.complete();
  run.end();
  return run.stored;
}

/** The same run at another instance, whose store is `store`, with one reader. */
export function joinedRun(store: RunStore, run: Run) {
  const { name } = run;
  if (!name) throw new Error('nobody can join a run without a name');
  const own = runOf(name);
  own.follow(run);
  const reader = readerOf(own);
  void store.follow(own);
  return { own, ...reader };
}

/** Resolves once a client has got this. */
export function got(sink: RecordingSink, text: string): Promise<void> {
  return until(() => sink.text === text);
}

/** Resolves with how a client's stream has ended. */
export async function endOf(sink: RecordingSink): Promise<string | undefined> {
  await until(() => sink.end !== undefined);
  return sink.end;
}
