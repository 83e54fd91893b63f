/** How long a transfer may stand still, and how long it may take as a whole, in ms. */
export interface TransferTimes {
  readonly stallMs: number;
  readonly wholeMs: number;
}

export interface TransferTimers {
  /** Some bytes have moved. */
  moved(): void;
  /** May be called again. */
  stop(): void;
}

/**
 * Calls `late` when nothing has moved for the stall time, or when the whole time is over; it may be called for both.
 * After a pause of this process, what has arrived meanwhile is read before it counts as standing still.
 */
export function transferTimers({ stallMs, wholeMs }: TransferTimes, late: () => void): TransferTimers {
  let afterReading: NodeJS.Immediate | undefined;
  const stalled = setTimeout(() => {
    afterReading = setImmediate(late);
  }, stallMs);
  const whole = setTimeout(late, wholeMs);
  return {
    moved() {
      clearImmediate(afterReading);
      stalled.refresh();
    },
    stop() {
      clearImmediate(afterReading);
      clearTimeout(stalled);
      clearTimeout(whole);
    },
  };
}
