import { Problem } from '../errors.ts';
import type { Run } from './run.ts';
import { FOLLOWED_MS } from './run-calls.ts';
import type { OutletSource } from './run-outlet.ts';
import type { Seat } from './run-seats.ts';

/** The readers at other instances, who count as one here. */
export interface RemoteReaders {
  /** For how long the run is followed elsewhere, in ms, and how far the fastest has come there. */
  update(followedMs: number, seen: number): void;
  /** A reader has left for good, here or elsewhere: if nobody reads the run after that, it ends with `problem`. */
  endUnread(problem: Problem): void;
  areThere(): boolean;
  /** Whether the service waits for them. */
  areBehind(): boolean;
}

interface State {
  readonly run: Run;
  readonly maxBytes: number;
  place: { readonly seat: Seat; readonly stop: AbortController } | undefined;
  source: OutletSource | undefined;
  seen: number;
  isFull: boolean;
  /** With what the run ends if nobody has read it since then, by `performance.now()` in ms. */
  unread: { readonly problem: Problem; readonly since: number } | undefined;
}

/** The end of a run whose last reader has left because its session has ended. */
export const SESSION_OVER = new Problem('session_ended', 'The session of the last reader has ended.');
/** A look at the run that came so much later is by another reader than the one that has left, in ms. */
const LATER_MS = 1_000;

/** Lets readers elsewhere keep the run open, and hold its service back if nobody is faster. */
export function remoteReaders(run: Run, maxBytes: number): RemoteReaders {
  return new ReadersElsewhere(run, maxBytes);
}

/** A class: most runs have none, and closures of each would take more time and more memory. */
class ReadersElsewhere implements RemoteReaders, State {
  readonly run: Run;
  readonly maxBytes: number;
  place: State['place'] = undefined;
  source: OutletSource | undefined = undefined;
  seen = 0;
  isFull = false;
  unread: State['unread'] = undefined;

  constructor(run: Run, maxBytes: number) {
    this.run = run;
    this.maxBytes = maxBytes;
  }

  update(followedMs: number, seen: number): void {
    const { run, unread } = this;
    this.seen = Math.max(this.seen, seen);
    const lookedAt = performance.now() + followedMs - FOLLOWED_MS;
    if (followedMs > 0 && unread && lookedAt > unread.since + LATER_MS) this.unread = undefined;
    if (followedMs > 0 && !this.areThere() && !run.isOver()) sit(this);
    else if (followedMs <= 0 && this.areThere()) leave(this);
    judge(this);
  }

  endUnread(problem: Problem): void {
    this.unread = { problem, since: performance.now() };
  }

  areThere(): boolean {
    return this.place !== undefined && !this.place.stop.signal.aborted;
  }

  areBehind(): boolean {
    return this.place !== undefined && this.isFull;
  }
}

function sit(state: State): void {
  const { run } = state;
  const stop = new AbortController();
  if (run.stop.signal.aborted) return;
  const seat = run.sitElsewhere(stop);
  seat.begun.catch(() => {});
  state.place = { seat, stop };
  // A new reader: the stream must be told if it is behind, too.
  state.isFull = false;
  const reading = seat.read(
    {
      open(source) {
        state.source = source;
      },
      write: () => judge(state),
      isFull: () => state.isFull,
      hasBegun: () => false,
      complete: () => state.source?.closed(),
      endEarly: () => state.source?.closed(),
    },
    run.log.end,
  );
  // The stream may end, or end them, before the others are known to have left.
  void reading.then(() => {
    seat.leave();
    if (state.place?.seat === seat) clear(state);
  });
}

function leave(state: State): void {
  const { place, source, unread } = state;
  clear(state);
  source?.closed();
  // What ends the last reader ends the run.
  if (unread) place?.stop.abort(unread.problem);
  place?.seat.leave();
  state.unread = undefined;
}

function clear(state: State): void {
  state.place = undefined;
  state.source = undefined;
}

/** What is stored goes no further ahead than half of what is kept, so that the fastest reader loses nothing. */
function judge(state: State): void {
  const { run, maxBytes, seen, source, isFull } = state;
  state.isFull = run.log.end - seen > maxBytes / 2;
  if (state.isFull && !isFull) source?.full();
  else if (!state.isFull && isFull) source?.drained();
}
