/** Lines in which callers wait for their turn, one line for each key. */
export interface WaitingLines {
  /** How many stand in line, with the one whose turn it is. */
  length(key: string): number;
  /**
   * Resolves, when those who came before have left, with what leaves the line; call it once. Rejects with the
   * signal's reason if that aborts before.
   */
  enter(key: string, signal: AbortSignal): Promise<() => void>;
}

/** First come, first served; a line that is empty takes no memory. */
export function waitingLines(): WaitingLines {
  // Behind the one whose turn it is.
  const lines = new Map<string, (() => void)[]>();

  function leave(key: string): void {
    const next = lines.get(key)?.shift();
    if (next) next();
    else lines.delete(key);
  }

  return {
    length: (key) => (lines.has(key) ? (lines.get(key)?.length ?? 0) + 1 : 0),
    async enter(key, signal) {
      signal.throwIfAborted();
      const line = lines.get(key);
      if (line) await turn(line, signal);
      else lines.set(key, []);
      return () => leave(key);
    },
  };
}

/** Waits at the end of `line` until it is called from there. Rejects with the signal's reason if that aborts before. */
export function turn(line: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    // It would not tell that again.
    if (signal.aborted) return reject(signal.reason);
    const giveUp = () => {
      line.splice(line.indexOf(come), 1);
      reject(signal.reason);
    };
    const come = () => {
      signal.removeEventListener('abort', giveUp);
      resolve();
    };
    line.push(come);
    signal.addEventListener('abort', giveUp, { once: true });
  });
}
