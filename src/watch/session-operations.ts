import type { Store } from 'express-session';
import type { Metrics } from './metrics.ts';

/** A store's methods, and as what they count. */
const OPERATIONS = {
  get: 'get',
  state: 'get',
  removedSince: 'get',
  set: 'set',
  touch: 'touch',
  extend: 'touch',
  destroy: 'destroy',
  remove: 'destroy',
  removeProviderSession: 'destroy',
  removeUser: 'destroy',
} as const;

type Method = (...args: unknown[]) => unknown;

/**
 * Counts the operations of a session store, whatever it keeps them in: from now on `store` itself reports each
 * of them, also those that express-session calls by way of others.
 */
export function countSessionOperations(store: Store, { sessionOperations }: Metrics): void {
  const methods = store as unknown as Record<string, Method | undefined>;
  for (const [name, operation] of Object.entries(OPERATIONS)) {
    const original = methods[name];
    if (original === undefined) continue;
    const report = (ok: boolean) => sessionOperations.inc({ operation, outcome: ok ? 'ok' : 'unavailable' });
    methods[name] = (...args) => {
      const callback = args.at(-1);
      if (typeof callback !== 'function') return reported(original.apply(store, args), report);
      const reporting = (error: unknown, ...rest: unknown[]) => {
        report(!error);
        callback(error, ...rest);
      };
      return original.apply(store, [...args.slice(0, -1), reporting]);
    };
  }
}

/** Reports how `result` ends, where a method answers with a promise. */
function reported(result: unknown, report: (ok: boolean) => void): unknown {
  Promise.resolve(result).then(
    () => report(true),
    () => report(false),
  );
  return result;
}
