import { type RunLog, readLog } from './run-log.ts';
import type { Outlet } from './run-outlet.ts';

/** One reader of a stream. */
export interface StreamReader {
  readonly outlet: Outlet;
  /** The offset up to which it has got the stream. */
  at: number;
  isFull: boolean;
  /** Whether that is inside an event. */
  isInside: boolean;
  /** Whether it still gets the stream. */
  isReading: boolean;
  next: StreamReader | undefined;
}

/** Those who read one stream, in the order in which they have come. */
export interface StreamReaders {
  /** The others follow by `next`. Most streams have one reader, for which a set would take more time and memory. */
  first: StreamReader | undefined;
}

/** Adds one who reads. */
export function addReader(readers: StreamReaders, reader: StreamReader): void {
  let last = readers.first;
  while (last?.next) last = last.next;
  if (last) last.next = reader;
  else readers.first = reader;
}

/**
 * Returns false if it was removed before. A loop that is at this reader now still gets to the next one, also if that is
 * removed after it: a loop asks `isReading`.
 */
export function removeReader(readers: StreamReaders, reader: StreamReader): boolean {
  if (!reader.isReading) return false;
  reader.isReading = false;
  let before = readers.first;
  while (before && before.next !== reader) before = before.next;
  if (before) before.next = reader.next;
  else readers.first = reader.next;
  return true;
}

/** Whether a reader has got a byte, be it of a heartbeat. */
export function haveBegun({ first }: StreamReaders): boolean {
  for (let reader = first; reader; reader = reader.next) if (reader.outlet.hasBegun()) return true;
  return false;
}

/** Whether no reader can take more. */
export function areFull({ first }: StreamReaders): boolean {
  for (let reader = first; reader; reader = reader.next) if (!reader.isFull) return false;
  return true;
}

/** The offset that the fastest reader has reached. */
export function furthest({ first }: StreamReaders): number {
  let most = 0;
  for (let reader = first; reader; reader = reader.next) most = Math.max(most, reader.at);
  return most;
}

/** Gives the next bytes to a reader. */
export function give(reader: StreamReader, bytes: Buffer, isInside: boolean): void {
  reader.outlet.write(bytes, isInside);
  reader.at += bytes.length;
  reader.isInside = isInside;
}

/** Gives all that the log has for this reader. */
export function giveKept(reader: StreamReader, log: RunLog): void {
  for (let part = readLog(log, reader.at); part; part = readLog(log, reader.at)) {
    give(reader, part.bytes, part.isInside);
  }
}
