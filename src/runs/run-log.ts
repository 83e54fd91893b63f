import type { HeldBytes } from '../relay/message/held-bytes.ts';

/** Counts the bytes that logs hold. */
export type LogBytes = Pick<HeldBytes, 'take' | 'release'>;

/** Some bytes of a log. */
export interface LogPart {
  readonly bytes: Buffer;
  /** Whether an event goes on after these bytes. */
  readonly isInside: boolean;
}

interface LogPage {
  readonly buffer: Buffer;
  readonly from: number;
  length: number;
  isInside: boolean;
  /** Whether somebody may still have a part of it. */
  isLent: boolean;
}

/** About how many bytes of memory a run takes besides its log. */
const RUN_BYTES = 5_120;
const FIRST_PAGE_BYTES = 1024;
const LARGEST_PAGE_BYTES = 32_768;

/**
 * The last bytes of one run's stream, without a gap. Offsets count from the stream's first byte. Bytes are copied into
 * pages, so that small events cost no more memory than they have, and keep no buffer of the network alive.
 */
export class RunLog {
  /** How many bytes of memory it takes, with its run. */
  bytes = 0;
  /** The offset after the last byte of the stream, kept or not. */
  end = 0;
  private readonly bound: LogBytes;
  /** The oldest first; the last one is written. */
  private pages: LogPage[] = [];
  /** The buffer of a forgotten page, for the next bytes: else a fast stream would leave garbage as large as itself. */
  private spare: Buffer | undefined;
  private isDropped = false;

  constructor(bound: LogBytes) {
    this.bound = bound;
  }

  /** The offset of the first byte that is kept; that of the end if there is none. */
  get start(): number {
    return this.pages[0]?.from ?? this.end;
  }

  /** Takes the stream's next bytes. Returns false if there is no room for them: call `drop` then. */
  push(bytes: Buffer, isInside: boolean): boolean {
    const last = this.pages.at(-1);
    const hasRoom = last && last.length + bytes.length <= last.buffer.length;
    const page = hasRoom ? last : this.newPage(bytes.length, last);
    this.end += bytes.length;
    if (!page) return false;
    page.buffer.set(bytes, page.length);
    page.length += bytes.length;
    page.isInside = isInside;
    return true;
  }

  /** The kept bytes from `at` to the end of their page, to be used at once; undefined if there are none. */
  read(at: number): LogPart | undefined {
    const page = this.pageAt(at);
    return page && partOf(page, at);
  }

  /** As `read`, for a caller who may keep the bytes. */
  lend(at: number): LogPart | undefined {
    const page = this.pageAt(at);
    if (!page) return undefined;
    page.isLent = true;
    return partOf(page, at);
  }

  /** Forgets the oldest pages that end at `to` or before, until `maxBytes` are left. */
  trim(maxBytes: number, to: number): void {
    let count = 0;
    for (const { buffer, from, length, isLent } of this.pages) {
      if (this.bytes <= maxBytes || from + length > to) break;
      if (!isLent && buffer.length === LARGEST_PAGE_BYTES) this.spare = buffer;
      this.bytes -= buffer.length;
      this.bound.release(buffer.length);
      count += 1;
    }
    if (count > 0) this.pages.splice(0, count);
  }

  /** No more bytes come: frees the spare page. */
  close(): void {
    this.spare = undefined;
  }

  /** Forgets all, and keeps nothing from then on. May be called again. */
  drop(): void {
    this.isDropped = true;
    this.pages = [];
    this.close();
    this.bound.release(this.bytes);
    this.bytes = 0;
  }

  /** Lets an empty log begin at the offset `from`. */
  startAt(from: number): void {
    this.end = from;
  }

  private pageAt(at: number): LogPage | undefined {
    const page = this.pages.findLast(({ from }) => at >= from);
    return page && at < page.from + page.length ? page : undefined;
  }

  private newPage(length: number, last: LogPage | undefined): LogPage | undefined {
    const doubled = last ? Math.min(last.buffer.length * 2, LARGEST_PAGE_BYTES) : FIRST_PAGE_BYTES;
    const capacity = Math.max(doubled, length);
    const taken = this.bytes === 0 ? capacity + RUN_BYTES : capacity;
    if (this.isDropped || !this.bound.take(taken)) return undefined;
    this.bytes += taken;
    // A smaller buffer would come from a shared pool, and keep all of the pool in memory.
    const buffer = this.spare?.length === capacity ? this.spare : Buffer.allocUnsafeSlow(capacity);
    this.spare = undefined;
    const page = { buffer, from: this.end, length: 0, isInside: false, isLent: false };
    this.pages.push(page);
    return page;
  }
}

function partOf({ buffer, from, length, isInside }: LogPage, at: number): LogPart {
  return { bytes: buffer.subarray(at - from, length), isInside };
}
