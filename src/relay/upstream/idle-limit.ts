/** How many connections that the service has closed are remembered. */
const REMEMBERED = 32;
/** After how many connections in a row that the service did not close, what was learned is forgotten. */
const SURVIVORS = 3;

/** Learns after which idle time the service closes connections. */
export interface IdleLimit {
  /** A connection that has been idle for so many ms, or longer, must not be used: half of the shortest time seen. */
  ms(): number;
  /** A connection has ended after `ageMs` of idleness: the service closed it, or it lived until the relay's own limit. */
  ended(ageMs: number, by: 'service' | 'relay'): void;
}

/** The limit for the connections to one origin; none until the service has closed one. */
export function idleLimit(): IdleLimit {
  const ages: number[] = [];
  let shortest = Number.POSITIVE_INFINITY;
  let survivors = 0;

  function learn(): void {
    shortest = Math.min(Number.POSITIVE_INFINITY, ...ages);
    survivors = 0;
  }

  return {
    ms: () => shortest / 2,
    ended(ageMs, by) {
      if (by === 'service') {
        ages.push(ageMs);
        if (ages.length > REMEMBERED) ages.shift();
        learn();
      } else if (ageMs > shortest && ++survivors === SURVIVORS) {
        ages.length = 0;
        learn();
      }
    },
  };
}
