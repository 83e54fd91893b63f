import { dropPassed, type Slot } from './slots.ts';

/** The state of an endpoint. Times in µs. */
export interface Endpoint {
  /** The slots of the last window and the future ones, in order of time. */
  readonly slots: Slot[];
  pausedUntil: number;
  /** Until when the service has asked for a pause: a message that starts before then goes on trial. */
  askedUntil: number;
  /** The ticket of the message on trial, and when its trial ends without a result. */
  trial?: { readonly ticket: string; readonly until: number } | undefined;
}

/** The endpoints that are remembered. */
export interface Endpoints {
  /** The endpoint without slots older than a window, and the current time in µs. */
  current(name: string): [Endpoint, number];
  /** Remembers the endpoint, as it is at the time `at`. */
  keep(name: string, endpoint: Endpoint, at: number): void;
}

/** From this number of endpoints on, idle ones are removed. */
const SWEEP_FROM = 1000;
export const US_PER_MS = 1000;

/** Endpoints in this process's memory, with slots of a `window` in µs. `now` is a monotonic clock in ms. */
export function memoryEndpoints(window: number, now: () => number): Endpoints {
  const endpoints = new Map<string, Endpoint>();
  let nextSweepAt = 0;

  function sweep(at: number): void {
    for (const [name, { slots, askedUntil }] of endpoints) {
      if (Math.max((slots.at(-1)?.at ?? 0) + window, askedUntil) <= at) endpoints.delete(name);
    }
  }

  return {
    current(name) {
      const at = Math.round(now() * US_PER_MS);
      const endpoint = endpoints.get(name) ?? { slots: [], pausedUntil: 0, askedUntil: 0 };
      dropPassed(endpoint.slots, at, window);
      return [endpoint, at];
    },
    keep(name, endpoint, at) {
      if (endpoints.size >= SWEEP_FROM && at >= nextSweepAt) {
        nextSweepAt = at + window;
        sweep(at);
      }
      endpoints.set(name, endpoint);
    },
  };
}
