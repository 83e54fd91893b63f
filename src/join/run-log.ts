/** Bounds the bytes that all logs of this instance hold together. */
export interface LogBudget {
  /** Counts `bytes` more; false, and nothing is counted, if there is no room for them. */
  take(bytes: number): boolean;
  release(bytes: number): void;
}

/** Some bytes of a log. */
export interface LogPart {
  readonly bytes: Buffer;
  /** Whether an event goes on after these bytes. */
  readonly isInside: boolean;
}

interface Page {
  readonly buffer: Buffer;
  readonly from: number;
  readonly length: number;
  readonly isInside: boolean;
}

interface State {
  readonly budget: LogBudget;
  /** The full pages, the oldest first. Most logs have none. */
  full: readonly Page[];
  /** The last page, which is written; undefined if there is none. */
  buffer: Buffer | undefined;
  /** The offset of its first byte, how many it has, and whether an event goes on after them. */
  from: number;
  length: number;
  isInside: boolean;
  /** How many bytes of memory it takes, with its run. */
  bytes: number;
  /** The offset after the last byte of the stream, kept or not. */
  end: number;
  isClosed: boolean;
}

/**
 * The last bytes of one run's stream, without a gap. Offsets count from the stream's first byte. Bytes are copied into
 * pages, so that small events cost no more memory than they have, and keep no buffer of the network alive. The functions
 * below alone change it: methods of its own would take more memory than the rest of it.
 */
export type RunLog = Readonly<State>;

/** What a run takes besides its log, about. */
const RUN_BYTES = 5_120;
const FIRST_PAGE_BYTES = 1024;
const LARGEST_PAGE_BYTES = 32_768;

/** All logs without a full page. */
const NONE: readonly Page[] = [];

/** Opens the log of one run, whose stream before the offset `from` is not there. */
export function runLog(budget: LogBudget, from = 0): RunLog {
  return {
    budget,
    full: NONE,
    buffer: undefined,
    from,
    length: 0,
    isInside: false,
    bytes: 0,
    end: from,
    isClosed: false,
  };
}

/** The offset of the first byte that is kept; that of the end if there is none. */
export function startOfLog({ full, buffer, from, end }: RunLog): number {
  return full[0]?.from ?? (buffer ? from : end);
}

/**
 * Takes the stream's next bytes; `isInside` tells whether an event goes on after them. False if there is no room for
 * them: `dropLog` must follow.
 */
export function pushToLog(log: State, bytes: Buffer, isInside: boolean): boolean {
  const { buffer, length } = log;
  const hasRoom = buffer !== undefined && length + bytes.length <= buffer.length;
  const page = hasRoom ? buffer : nextPage(log, bytes.length);
  log.end += bytes.length;
  if (!page) return false;
  page.set(bytes, log.length);
  log.length += bytes.length;
  log.isInside = isInside;
  return true;
}

/** Opens a page with room for `length` bytes; undefined if there is no room for it. */
function nextPage(log: State, length: number): Buffer | undefined {
  const { full, buffer: last, budget, end, isClosed } = log;
  const doubled = last ? Math.min(last.length * 2, LARGEST_PAGE_BYTES) : FIRST_PAGE_BYTES;
  const capacity = Math.max(doubled, length);
  const besides = log.bytes === 0 ? RUN_BYTES : 0;
  if (isClosed || !budget.take(capacity + besides)) return undefined;
  log.bytes += capacity + besides;
  const { from, length: taken, isInside } = log;
  if (last) log.full = [...full, { buffer: last, from, length: taken, isInside }];
  // A smaller buffer would come from a shared pool, and keep all of the pool in memory.
  log.buffer = Buffer.allocUnsafeSlow(capacity);
  log.from = end;
  log.length = 0;
  return log.buffer;
}

/** The kept bytes from `at` to the end of their page; undefined if there are none. */
export function readLog(log: RunLog, at: number): LogPart | undefined {
  const page = isIn(log, at) ? log : log.full.find((one) => isIn(one, at));
  if (!page?.buffer) return undefined;
  return { bytes: page.buffer.subarray(at - page.from, page.length), isInside: page.isInside };
}

/** Forgets the oldest pages that end at `to` or before, until `maxBytes` are left. */
export function trimLog(log: State, maxBytes: number, to: number): void {
  const { full, buffer } = log;
  let count = 0;
  for (let page = full[0]; page && log.bytes > maxBytes && endOf(page) <= to; page = full[count]) {
    forget(log, page.buffer);
    count += 1;
  }
  if (count > 0) log.full = full.slice(count);
  if (log.full.length > 0 || !buffer || log.bytes <= maxBytes || endOf(log) > to) return;
  forget(log, buffer);
  log.buffer = undefined;
  log.length = 0;
}

function forget(log: State, { length }: Buffer): void {
  log.bytes -= length;
  log.budget.release(length);
}

/** Forgets all, and keeps nothing from then on. May be called again. */
export function dropLog(log: State): void {
  log.isClosed = true;
  log.full = NONE;
  log.buffer = undefined;
  log.length = 0;
  log.budget.release(log.bytes);
  log.bytes = 0;
}

type Place = Pick<Page, 'from' | 'length'>;

function endOf({ from, length }: Place): number {
  return from + length;
}

function isIn(page: Place, at: number): boolean {
  return at >= page.from && at < endOf(page);
}
