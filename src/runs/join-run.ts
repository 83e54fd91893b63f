import { setTimeout as sleep } from 'node:timers/promises';
import { eventPlace } from './event-place.ts';
import type { Run } from './run.ts';
import type { RunName } from './run-name.ts';
import { NOT_KEPT, RUN_OVER } from './run-problems.ts';
import type { Reader, ReaderClient } from './run-reader.ts';
import type { RunStore } from './run-store.ts';

/** A request that wants the stream of a message. */
export interface RunEntry {
  readonly requestId: string;
  readonly lastEventId: string | undefined;
  /** Since when it waits, by `performance.now()` in ms. */
  readonly waitsSince: number;
  readonly client: ReaderClient;
}

/** A message that joins its run, or begins it. */
export interface MessageEntry extends RunEntry {
  /** Undefined if nobody can join it. */
  readonly name: RunName | undefined;
  /** The key of the conversation whose stop drops it; undefined if no stop does. */
  readonly conversation: string | undefined;
}

/** A run, and the place in it from which a client reads. */
export interface JoinedRun {
  readonly run: Run;
  readonly reader: Reader;
  /** The offset of its stream. */
  readonly at: number;
  /** `begun` by this request, which sends it if it has not ended; joined while it is `live`, or has `ended` and is kept; or `resumed` after an event. */
  readonly how: 'begun' | 'live' | 'ended' | 'resumed';
}

/**
 * Lets a client read a run from its beginning.
 * @throws Problem `run_over` or `run_not_kept`; what has ended the client
 */
export function joinWhole(run: Run, entry: RunEntry): JoinedRun {
  const joined = joinAt(run, entry);
  if (!joined) throw run.state === 'ended' ? RUN_OVER : NOT_KEPT;
  return joined;
}

/**
 * Lets a client read a run from its beginning, or from after its last event. Undefined if that is not in the log, or if
 * it is an event of a run that has ended with a problem: the service may have the rest. @throws what has ended the client
 */
export function joinAt(run: Run, { lastEventId, client }: RunEntry): JoinedRun | undefined {
  const { log, ended } = run.stream;
  if (lastEventId !== undefined && ended?.problem) return undefined;
  const at = lastEventId === undefined ? 0 : eventPlace(log, lastEventId);
  if (at === undefined || at < log.start) return undefined;
  const how = lastEventId !== undefined ? 'resumed' : run.state === 'ended' ? 'ended' : 'live';
  return { run, reader: run.attach(client), at, how };
}

/**
 * An event is looked for so many times, with this pause in ms: what came within the last second may not be stored yet.
 */
const SEEK_EVERY_MS = 200;
const SEEKS = 6;

/** Lets a client read a run of another instance from after its last event; undefined if that is not stored. */
export async function seekEvent(
  store: Pick<RunStore, 'follow'>,
  run: Run,
  entry: RunEntry,
): Promise<JoinedRun | undefined> {
  for (let seeks = 1; ; seeks++) {
    await store.follow(run);
    const joined = joinAt(run, entry);
    if (joined || run.state === 'ended' || seeks === SEEKS) return joined;
    await sleep(SEEK_EVERY_MS);
  }
}
