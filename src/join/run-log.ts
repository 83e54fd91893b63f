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
  readonly start: number;
  readonly capacity: number;
  readonly from: number;
  readonly length: number;
  readonly isInside: boolean;
}

interface State {
  /** Where the last page is, which is written; undefined if there is none. */
  buffer: Buffer | undefined;
  /** Where the page begins there, how many bytes it has, and how many it has room for. */
  start: number;
  length: number;
  capacity: number;
  /** Whether an event goes on after them. */
  isInside: boolean;
  /** How many bytes of memory the log takes, with its run. */
  bytes: number;
  /** The offset after the last byte of the stream, kept or not. */
  end: number;
  /** The offset of the first byte of the page. */
  from: number;
  /** The full pages, the oldest first. Most logs have none. */
  full: readonly Page[];
  readonly budget: LogBudget;
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
/**
 * So many first pages are in one buffer, which is there as long as one of them: most logs are small, and a buffer for each
 * takes more time to make, and for each event to load, than all else of a log. It is never written twice.
 */
const PAGES_TOGETHER = 8;

/** All logs without a full page. */
const NONE: readonly Page[] = [];
/** The buffer with the newest first pages, and where the next one begins. */
let together: Buffer | undefined;
let next = 0;

/** Opens the log of one run, whose stream before the offset `from` is not there. */
export function runLog(budget: LogBudget, from = 0): RunLog {
  // What each event needs stands together.
  return {
    buffer: undefined,
    start: 0,
    length: 0,
    capacity: 0,
    isInside: false,
    bytes: 0,
    end: from,
    from,
    full: NONE,
    budget,
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
  const { length } = bytes;
  const hasRoom = log.length + length <= log.capacity;
  const buffer = hasRoom && log.buffer ? log.buffer : nextPage(log, length);
  log.end += length;
  if (!buffer) return false;
  buffer.set(bytes, log.start + log.length);
  log.length += length;
  log.isInside = isInside;
  return true;
}

/** Opens a page with room for `length` bytes. Returns where it is; undefined if there is no room for it. */
function nextPage(log: State, length: number): Buffer | undefined {
  const { full, buffer: last, budget, end, isClosed } = log;
  const doubled = last ? Math.min(log.capacity * 2, LARGEST_PAGE_BYTES) : FIRST_PAGE_BYTES;
  const capacity = Math.max(doubled, length);
  const besides = log.bytes === 0 ? RUN_BYTES : 0;
  if (isClosed || !budget.take(capacity + besides)) return undefined;
  log.bytes += capacity + besides;
  const { start, from, length: taken, isInside } = log;
  if (last) {
    log.full = [...full, { buffer: last, start, capacity: log.capacity, from, length: taken, isInside }];
  }
  log.capacity = capacity;
  log.from = end;
  log.length = 0;
  if (capacity === FIRST_PAGE_BYTES) return takeTogether(log);
  // Node.js has another pool for small buffers, which many other things would keep in memory.
  log.buffer = Buffer.allocUnsafeSlow(capacity);
  log.start = 0;
  return log.buffer;
}

function takeTogether(log: State): Buffer {
  if (!together || next === together.length) {
    together = Buffer.allocUnsafeSlow(PAGES_TOGETHER * FIRST_PAGE_BYTES);
    next = 0;
  }
  log.buffer = together;
  log.start = next;
  next += FIRST_PAGE_BYTES;
  return together;
}

/** The kept bytes from `at` to the end of their page; undefined if there are none. */
export function readLog(log: RunLog, at: number): LogPart | undefined {
  const page = isIn(log, at) ? log : log.full.find((one) => isIn(one, at));
  if (!page?.buffer) return undefined;
  const { buffer, start, from, length, isInside } = page;
  return { bytes: buffer.subarray(start + at - from, start + length), isInside };
}

/** Forgets the oldest pages that end at `to` or before, until `maxBytes` are left. */
export function trimLog(log: State, maxBytes: number, to: number): void {
  const { full, buffer } = log;
  let count = 0;
  for (let page = full[0]; page && log.bytes > maxBytes && endOf(page) <= to; page = full[count]) {
    forget(log, page.capacity);
    count += 1;
  }
  if (count > 0) log.full = full.slice(count);
  if (log.full.length > 0 || !buffer || log.bytes <= maxBytes || endOf(log) > to) return;
  forget(log, log.capacity);
  log.buffer = undefined;
  log.length = 0;
  log.capacity = 0;
}

function forget(log: State, capacity: number): void {
  log.bytes -= capacity;
  log.budget.release(capacity);
}

/** Forgets all, and keeps nothing from then on. May be called again. */
export function dropLog(log: State): void {
  log.isClosed = true;
  log.full = NONE;
  log.buffer = undefined;
  log.length = 0;
  log.capacity = 0;
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
