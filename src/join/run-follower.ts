import { Problem } from '../errors.ts';
import type { Progress, Run } from './run.ts';
import { ENTRIES, type Entry, type ReadAnswer, type RunCalls } from './run-calls.ts';
import type { RunCodec, StoredEnd, StoredHead } from './run-codec.ts';
import { RUN_LOST } from './run-lost.ts';

/** A run of another instance, whose log is read for the clients of this one. */
export interface Follower {
  readonly id: string;
  readonly run: Run;
  /** Kept up to date by the end of the run. */
  readonly progress: Progress;
  /** The last entry that was read; empty at first. */
  after: string;
  /** The offset up to which the run's stream was written here. */
  at: number;
  /** What was written here before the log had it, and must come next. */
  ahead: Buffer;
  isInside: boolean;
  endsWithCr: boolean;
  hasBegun: boolean;
  isFull: boolean;
  isOver: boolean;
  /** The offset that Redis was told at the last look. */
  told: number;
  /** A look is under way; and whether another must follow. */
  isLooking: boolean;
  looksAgain: boolean;
  /** Since when Redis has not answered, and when it last failed, by `performance.now()` in ms. */
  failingSince: number | undefined;
  failedAt: number;
}

export interface FollowerOptions {
  readonly calls: RunCalls;
  readonly codec: RunCodec;
  /** The holder of the run is lost: takes it over, or ends it. */
  readonly onLost: (follower: Follower) => Promise<void>;
  /** Called with what was thrown by mistake. */
  readonly onFault?: ((run: Run, error: unknown) => void) | undefined;
}

/** Readers wait for Redis no longer than this, in ms. */
const FAILING_MS = 20_000;
/** After a failure of Redis, holders have so long to extend their leases, in ms. */
const CALM_MS = 4_000;
/** A reader that has come so much further tells it at once, in bytes. */
const TELL_BYTES = 16_384;
const CR = 0x0d;
const NOTHING = Buffer.alloc(0);

/** The end of a run whose message was not sent because its own client has left: who waits may send it. */
export const RUN_DROPPED = new Problem(
  'session_store_unavailable',
  'Messages can not be sent right now; try again.',
  { retryAfter: 1 },
);

const TOO_SLOW = new Problem('reader_too_slow', 'This reader fell too far behind the answer.');

/** Begins to follow a run. `ahead` are the last bytes that were written to it already, and may not be in the log yet. */
export function follower(
  id: string,
  run: Run,
  from: Pick<Follower, 'at' | 'hasBegun'> & Partial<Pick<Follower, 'ahead' | 'isInside'>>,
): Follower {
  const { at, ahead = NOTHING, hasBegun, isInside = false } = from;
  return {
    ...{ id, run, progress: run.progress, after: '', at, ahead, hasBegun, told: at },
    ...{ isInside, endsWithCr: false, isFull: false, isOver: false },
    ...{ isLooking: false, looksAgain: false, failingSince: undefined, failedAt: Number.NEGATIVE_INFINITY },
  };
}

/** Lets the stream of the run be written by the follower. */
export function openStream(follower: Follower, options: FollowerOptions): void {
  const { outlet } = follower.run.stream;
  outlet.open({
    full() {
      follower.isFull = true;
    },
    drained() {
      if (!follower.isFull) return;
      follower.isFull = false;
      void look(follower, options);
    },
    mayBeat: () => !follower.isInside && !follower.endsWithCr,
    closed() {
      follower.isOver = true;
    },
  });
  follower.isFull = outlet.isFull();
}

/** Reads what has come. What is stored counts, whatever was published. Never rejects. */
export async function look(follower: Follower, options: FollowerOptions): Promise<void> {
  follower.looksAgain = true;
  if (follower.isLooking) return;
  follower.isLooking = true;
  while (follower.looksAgain && !follower.isOver) {
    follower.looksAgain = false;
    await lookOnce(follower, options).catch((error) => fail(follower, error, options));
  }
  follower.isLooking = false;
}

/** Such as what another version has stored, and this one cannot read. It ends this run, and not the process. */
function fail(follower: Follower, error: unknown, { onFault }: FollowerOptions): void {
  const { run } = follower;
  onFault?.(run, error);
  endWith(follower, RUN_LOST);
  if (run.isOver()) return;
  // The end itself has failed.
  run.over(RUN_LOST);
  run.endAll(RUN_LOST);
}

/** Who can take no more now still reads the run. Never rejects. */
export async function stay({ id, after, at }: Follower, { calls }: FollowerOptions): Promise<void> {
  await calls.read(id, { after, at, wantsHead: false, isFull: true }).catch(() => {});
}

/** Reads up to the offset `end`, whoever can take it. */
export async function catchUp(follower: Follower, end: number, options: FollowerOptions): Promise<void> {
  const { id } = follower;
  while (!follower.isOver && follower.at < end) {
    follower.isFull = false;
    const { after, at, hasBegun } = follower;
    const answer = await options.calls.read(id, { after, at, wantsHead: !hasBegun });
    take(follower, answer, options);
    if (answer.entries.length === 0) return;
  }
}

async function lookOnce(follower: Follower, options: FollowerOptions): Promise<void> {
  const { id, after, at, hasBegun } = follower;
  let answer: ReadAnswer;
  try {
    answer = await options.calls.read(id, { after, at, wantsHead: !hasBegun });
  } catch {
    follower.failedAt = performance.now();
    follower.failingSince ??= follower.failedAt;
    if (follower.failedAt - follower.failingSince > FAILING_MS) endWith(follower, RUN_LOST);
    return;
  }
  follower.failingSince = undefined;
  follower.told = at;
  if (!follower.isOver) take(follower, answer, options);
  const { state, leaseMs, entries } = answer;
  if (follower.isOver || entries.length > 0) return;
  const isCalm = performance.now() - follower.failedAt > CALM_MS;
  if (state === 'live' && leaseMs <= 0 && isCalm && !follower.isFull) await options.onLost(follower);
}

function take(
  follower: Follower,
  { state, first, head, entries }: ReadAnswer,
  options: FollowerOptions,
): void {
  if (!follower.hasBegun && head !== '' && !begin(follower, head, options)) return;
  for (const entry of entries) {
    // The rest is read again when there is room.
    if (follower.isOver || follower.isFull) return;
    takeEntry(follower, entry, options);
  }
  if (follower.isOver) return;
  // The one who carries the run may wait for this reader.
  const isAhead = follower.at - follower.told > TELL_BYTES;
  if (entries.length === ENTRIES || isAhead) follower.looksAgain = true;
  // Nothing more will come into this log.
  else if (entries.length === 0 && (state !== 'live' || first < 0)) endWith(follower, RUN_LOST);
}

function begin(follower: Follower, sealed: string, options: FollowerOptions): boolean {
  const stored = options.codec.open(sealed, follower.id, 'head') as StoredHead | undefined;
  if (!stored) {
    endWith(follower, RUN_LOST);
    return false;
  }
  for (const [name, value] of stored.headers) follower.run.headers.set(name, value);
  follower.hasBegun = true;
  follower.run.begin(new Map(stored.head));
  openStream(follower, options);
  return true;
}

function takeEntry(follower: Follower, [entryId, fields]: Entry, { codec }: FollowerOptions): void {
  follower.after = entryId;
  const [name, value = ''] = fields;
  if (name === 'e') {
    takeEnd(follower, codec.openEnd(value, follower.id));
    return;
  }
  const offset = Number(value);
  const bytes = codec.openBytes(fields[5] ?? '', follower.id, offset);
  if (!bytes) endWith(follower, RUN_LOST);
  else if (offset > follower.at - follower.ahead.length) endWith(follower, TOO_SLOW);
  else takeBytes(follower, bytes, { offset, isInside: fields[3] !== '' });
}

/** A log that was closed has an end, too: who has not got all before it has a hole there. */
function takeEnd(follower: Follower, end: StoredEnd | undefined): void {
  if (!end || end.isDropped) {
    endWith(follower, end ? RUN_DROPPED : RUN_LOST);
    return;
  }
  const { at, ahead, hasBegun, progress, run } = follower;
  Object.assign(progress, end.progress);
  for (const [header, text] of end.headers) run.headers.set(header, text);
  if (at === end.at && ahead.length === 0 && (hasBegun || end.problem)) {
    endWith(follower, end.problem, end.isCut);
  } else endWith(follower, end.problem ?? RUN_LOST);
}

function takeBytes(
  follower: Follower,
  bytes: Buffer,
  { offset, isInside }: { readonly offset: number; readonly isInside: boolean },
): void {
  const known = follower.at - offset;
  // Who has carried the run may have written more here than it has stored: another must go on with the same.
  const again = bytes.subarray(Math.max(0, known - follower.ahead.length), known);
  if (!again.equals(follower.ahead.subarray(0, again.length))) {
    endWith(follower, RUN_LOST);
    return;
  }
  follower.ahead = follower.ahead.subarray(again.length);
  const fresh = bytes.subarray(known);
  // What is here may go further than this entry.
  if (known <= bytes.length) follower.isInside = isInside;
  if (fresh.length === 0) return;
  follower.at += fresh.length;
  follower.endsWithCr = fresh.at(-1) === CR;
  follower.run.stream.outlet.write(fresh, follower.isInside || follower.endsWithCr);
}

/** Ends the run for the clients of this instance; without a problem, as complete. */
export function endWith(follower: Follower, problem: Problem | undefined, isCut = follower.isInside): void {
  if (follower.isOver) return;
  follower.isOver = true;
  const { run, hasBegun } = follower;
  if (hasBegun && problem) run.stream.outlet.endEarly(problem, isCut);
  else if (hasBegun) run.stream.outlet.complete();
  run.over(problem);
}
