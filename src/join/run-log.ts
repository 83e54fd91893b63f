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

/**
 * The last bytes of one run's stream, without a gap. Offsets count from the stream's first byte. Bytes are copied into
 * pages, so that small events cost no more memory than they have, and keep no buffer of the network alive.
 */
export interface RunLog {
  /** The offset of the first byte that is kept; that of the end if there is none. */
  start(): number;
  /** The offset after the last byte of the stream, kept or not. */
  end(): number;
  /** How many bytes of memory it takes, with its run. */
  bytes(): number;
  /** Takes the stream's next bytes. False if there is no room for them: `close` must follow. */
  push(bytes: Buffer, isInside: boolean): boolean;
  /** The kept bytes from `at` to the end of their page; undefined if there are none. */
  read(at: number): LogPart | undefined;
  /** Forgets the oldest pages that end at `to` or before, until `maxBytes` are left. */
  trim(maxBytes: number, to: number): void;
  /** Forgets all, and keeps nothing from then on. May be called again. */
  close(): void;
}

interface Page {
  readonly buffer: Buffer;
  readonly from: number;
  length: number;
  isInside: boolean;
}

/** What a run takes besides its log, about. */
const RUN_BYTES = 5_120;
const FIRST_PAGE_BYTES = 1024;
const LARGEST_PAGE_BYTES = 32_768;

interface State {
  readonly budget: LogBudget;
  readonly pages: Page[];
  held: number;
  end: number;
  isClosed: boolean;
}

/** Opens the log of one run, whose stream before the offset `from` is not there. */
export function runLog(budget: LogBudget, from = 0): RunLog {
  const state: State = { budget, pages: [], held: 0, end: from, isClosed: false };
  const { pages } = state;
  return {
    start: () => pages[0]?.from ?? state.end,
    end: () => state.end,
    bytes: () => state.held,
    push: (bytes, isInside) => push(state, { bytes, isInside }),
    read: (at) => read(pages, at),
    trim(maxBytes, to) {
      for (let page = pages[0]; page && state.held > maxBytes && endOf(page) <= to; page = pages[0]) {
        pages.shift();
        drop(state, page);
      }
    },
    close() {
      state.isClosed = true;
      pages.splice(0);
      budget.release(state.held);
      state.held = 0;
    },
  };
}

function push(state: State, { bytes, isInside }: LogPart): boolean {
  const page = pageFor(state, bytes.length);
  state.end += bytes.length;
  if (!page) return false;
  page.buffer.set(bytes, page.length);
  page.length += bytes.length;
  page.isInside = isInside;
  return true;
}

/** A page with room for `length` bytes; undefined if there is no room for it. */
function pageFor(state: State, length: number): Page | undefined {
  const { pages, budget, end, isClosed } = state;
  const last = pages.at(-1);
  if (last && last.length + length <= last.buffer.length) return last;
  const doubled = last ? Math.min(last.buffer.length * 2, LARGEST_PAGE_BYTES) : FIRST_PAGE_BYTES;
  const capacity = Math.max(doubled, length);
  const besides = state.held === 0 ? RUN_BYTES : 0;
  if (isClosed || !budget.take(capacity + besides)) return undefined;
  state.held += capacity + besides;
  // A smaller buffer would come from a shared pool, and keep all of the pool in memory.
  const page: Page = { buffer: Buffer.allocUnsafeSlow(capacity), from: end, length: 0, isInside: false };
  pages.push(page);
  return page;
}

function read(pages: readonly Page[], at: number): LogPart | undefined {
  const page = pages.find((one) => at >= one.from && at < endOf(one));
  if (!page) return undefined;
  return { bytes: page.buffer.subarray(at - page.from, page.length), isInside: page.isInside };
}

function endOf({ from, length }: Page): number {
  return from + length;
}

function drop(state: State, page: Page): void {
  state.held -= page.buffer.length;
  state.budget.release(page.buffer.length);
}
