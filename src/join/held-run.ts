import { type FirstIdRun, releaseWaiting } from './first-id.ts';
import type { Run } from './run.ts';
import type { Batch, BatchAnswer, Claim } from './run-calls.ts';
import type { RunCodec, StoredEnd, StoredHead } from './run-codec.ts';
import type { LogBudget, LogPart } from './run-log.ts';
import type { RunName } from './run-name.ts';

/** A run that this instance carries, and what of it is not stored yet. */
export interface HeldRun extends Claim, FirstIdRun {
  readonly run: Run;
  readonly name: RunName;
  /** The offset of the first byte that is not stored for certain. */
  offset: number;
  /** What is being stored, and what waits. */
  sent: LogPart[];
  pending: LogPart[];
  pendingBytes: number;
  /** What both have is counted there. */
  readonly budget: LogBudget;
  countedBytes: number;
  /** The batch whose answer has not come: it is sent again unchanged. */
  sending: Batch | undefined;
  head: StoredHead | undefined;
  /** Makes what another instance needs to go on with it, besides its cursor. */
  hold: (() => unknown) | undefined;
  end: { readonly how: StoredEnd; readonly state: Batch['state'] } | undefined;
  /** Whether other instances shall take it. */
  isHandedOver: boolean;
  /** Nothing more is stored of its stream. */
  log: 'open' | 'closing' | 'closed';
  /** When the last batch was sent that was answered, by `performance.now()` in ms: the lease begins then, or later. */
  confirmedAt: number;
  /** Whether its stream has begun. */
  hasBegun: boolean;
  /** Whether an event goes on after what was written. */
  isInside: boolean;
  /** Redis has lost it: nothing of it is stored, and no other instance knows it. */
  isLostByRedis: boolean;
  /** Whether another instance could go on with what is stored: its stream has had an id. */
  isResumable: boolean;
  /** Whether clients of other instances read it, as far as is known here. */
  isFollowed: boolean;
  /** Whether Redis is asked how far readers elsewhere have come, though there is nothing to store. */
  isAsking: boolean;
  /** Whether what carries it is ahead of what was noted: part of that waits. */
  isSourceAhead: boolean;
}

/** How many bytes one batch has, about: a larger one makes Redis hold up all others. */
const BATCH_BYTES = 65_536;
/** How much more than what is kept of a run may wait to be stored, in bytes. */
const WAITING_BYTES = 1 << 20;
/** What nobody waits for is stored when the lease is extended, unless it is as much as this, in bytes. */
const UNREAD_BYTES = 16_384;
/** How often a lease is extended, in ms. */
const RENEW_MS = 1_500;

/** A run that was claimed, or taken over, before `sentAt`. */
export function heldRun(
  claim: Claim,
  run: Run,
  from: Pick<HeldRun, 'name' | 'offset' | 'budget'> & { readonly sentAt: number },
): HeldRun {
  // Written out: a spread takes more time and more memory.
  return {
    id: claim.id,
    token: claim.token,
    requestId: claim.requestId,
    run,
    name: from.name,
    offset: from.offset,
    confirmedAt: from.sentAt,
    sent: [],
    pending: [],
    pendingBytes: 0,
    budget: from.budget,
    countedBytes: 0,
    sending: undefined,
    head: undefined,
    hold: undefined,
    end: undefined,
    isHandedOver: false,
    log: 'open',
    source: undefined,
    hasBegun: false,
    isInside: false,
    waiting: undefined,
    isLostByRedis: false,
    // What was taken over may have more readers than those here.
    isFollowed: from.offset > 0,
    isAsking: false,
    isResumable: false,
    isSourceAhead: false,
  };
}

/**
 * Notes bytes of the stream, of which `maxBytes` are kept. If too much could not be stored, or there is no memory for
 * it, the log is closed.
 */
export function note(held: HeldRun, part: LogPart, maxBytes: number): void {
  if (held.log !== 'open') return;
  const { length } = part.bytes;
  if (!held.budget.take(length)) {
    closeLog(held);
    return;
  }
  held.countedBytes += length;
  held.pendingBytes += length;
  held.pending.push(part);
  if (held.pendingBytes > maxBytes + WAITING_BYTES) closeLog(held);
}

/** Stores no more of the stream: it would have a gap. */
export function closeLog(held: HeldRun): void {
  if (held.log === 'open') held.log = 'closing';
  // What is being stored is given up.
  Object.assign(held, { pending: [], pendingBytes: 0, sent: [], sending: undefined });
  release(held, held.countedBytes);
  releaseWaiting(held);
}

/** Nothing more is stored of the run. What waits may still be read. */
export function stopStoring(held: HeldRun): void {
  held.log = 'closed';
  release(held, held.countedBytes);
  releaseWaiting(held);
}

function release(held: HeldRun, bytes: number): void {
  held.budget.release(bytes);
  held.countedBytes -= bytes;
}

/** Whether there is something to store. */
export function hasNews({ sending, head, pending }: HeldRun): boolean {
  return sending !== undefined || head !== undefined || pending.length > 0;
}

/**
 * Whether what comes is stored soon: the run has just begun, or somebody reads it elsewhere, or it is much, or another
 * instance could go on with it. Clients count the events since their last id, so what the log lacks then is what they
 * may miss.
 */
export function isAwaited({ head, isFollowed, isResumable, pendingBytes }: HeldRun): boolean {
  return head !== undefined || isFollowed || isResumable || pendingBytes >= UNREAD_BYTES;
}

/** Whether something must be stored now, or the lease extended. */
export function isDue(held: HeldRun, now: number): boolean {
  const { sending, end, isHandedOver, isAsking, log, confirmedAt } = held;
  if (isAsking || sending || end || isHandedOver || log === 'closing') return true;
  return now - confirmedAt >= RENEW_MS || (isAwaited(held) && hasNews(held));
}

/** What is to be stored now of a run of which `maxBytes` are kept. */
export function batchOf(held: HeldRun, codec: RunCodec, maxBytes: number): Batch {
  // The oldest batches of a log are forgotten as wholes.
  held.sending ??= newBatch(held, codec, Math.min(BATCH_BYTES, maxBytes / 4));
  return held.sending;
}

function newBatch(held: HeldRun, codec: RunCodec, batchBytes: number): Batch {
  const { id, token, offset, head, end, isHandedOver, log } = held;
  const bytes = takePending(held, batchBytes);
  const isLast = held.pending.length === 0;
  const isInside = held.sent.at(-1)?.isInside === true;
  const isPlace = bytes.length > 0 && isLast && !isInside && !held.isSourceAhead;
  const cursor = isPlace ? held.source?.resumeState?.() : undefined;
  // Nobody can go on without a cursor, or takes over what is over: most runs never need to be stored with their message.
  const hold = cursor && !end ? held.hold?.() : undefined;
  if (hold !== undefined) held.hold = undefined;
  held.head = undefined;
  return {
    ...{ id, token, isInside, length: bytes.length, offset: log === 'closing' ? -1 : offset },
    data: bytes.length > 0 ? codec.sealBytes(bytes, id, offset) : '',
    head: head ? codec.seal(head, id, 'head') : '',
    hold: hold === undefined ? '' : codec.seal(hold, id, 'hold'),
    cursor: cursor ? codec.seal({ at: offset + bytes.length, cursor }, id, 'cursor') : '',
    end: end && isLast ? codec.sealEnd(end.how, id) : '',
    state: isLast ? (end?.state ?? (isHandedOver ? 'given' : '')) : '',
  };
}

function takePending(held: HeldRun, batchBytes: number): Buffer {
  let bytes = 0;
  const count = held.pending.findIndex((part) => {
    bytes += part.bytes.length;
    return bytes >= batchBytes;
  });
  held.sent = held.pending.splice(0, count < 0 ? held.pending.length : count + 1);
  const taken = Buffer.concat(held.sent.map((part) => part.bytes));
  held.pendingBytes -= taken.length;
  return taken;
}

/** The batch was answered. Returns whether nothing more is to be stored of the run. */
export function answered(held: HeldRun, batch: Batch, [status]: BatchAnswer): boolean {
  if (held.sending === batch) {
    held.offset += batch.length;
    release(held, batch.length);
    held.sent = [];
    held.sending = undefined;
  }
  if (status === 'closed' || batch.offset < 0) {
    closeLog(held);
    held.log = 'closed';
  }
  // Without a cursor, what was stored is too little yet; or this place, or the whole stream, cannot be resumed.
  if (batch.cursor !== '' || held.pending.length === 0) releaseWaiting(held);
  return batch.state !== '';
}
