/** Silence is measured in ticks: this many for each period. */
const TICKS_PER_PERIOD = 8;

/** How long one stream has been silent, in ticks. Every write to the stream sets it back to 0. */
export interface Silence {
  ticks: number;
}

/** The heartbeats of all streams. */
export interface Heartbeats {
  /** Calls `beat` once per period for as long as the stream is silent. */
  watch(silence: Silence, beat: () => void): void;
  /** Stops the calls. */
  unwatch(silence: Silence): void;
}

/**
 * Heartbeats after `periodMs` of silence, or up to an eighth of it later; 0 turns them off. One timer serves all streams,
 * so that a chunk costs no more than setting one number to 0. It ends when a tick finds no stream, and not with the last
 * stream, since the next one often comes soon.
 */
export function createHeartbeats(periodMs: number): Heartbeats {
  const streams = new Map<Silence, () => void>();
  let timer: NodeJS.Timeout | undefined;

  function tick(): void {
    if (streams.size === 0) {
      clearInterval(timer);
      timer = undefined;
      return;
    }
    for (const [silence, beat] of streams) {
      // The first tick after a write does not count, since it comes sooner than one tick after the write.
      if (++silence.ticks <= TICKS_PER_PERIOD) continue;
      silence.ticks = 1;
      beat();
    }
  }

  return {
    watch(silence, beat) {
      if (periodMs === 0) return;
      streams.set(silence, beat);
      timer ??= setInterval(tick, periodMs / TICKS_PER_PERIOD).unref();
    },
    unwatch: (silence) => void streams.delete(silence),
  };
}
