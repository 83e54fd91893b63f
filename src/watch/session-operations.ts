import type { Metrics } from './metrics.ts';

/** The methods of a store, and the operation that each counts as. */
const OPERATIONS = {
  get: 'get',
  hasEnded: 'get',
  state: 'get',
  removedSince: 'get',
  set: 'set',
  extend: 'touch',
  remove: 'destroy',
  removeProviderSession: 'destroy',
  removeUser: 'destroy',
} as const;

type Call = (...args: never[]) => Promise<unknown>;

/** Wraps a session store: counts its operations by whether they succeeded. */
export function countSessionOperations<Store extends Readonly<Record<keyof typeof OPERATIONS, Call>>>(
  store: Store,
  { sessionOperations }: Metrics,
): Store {
  const counted = Object.entries(OPERATIONS).map(([name, operation]) => {
    const call: Call = store[name as keyof typeof OPERATIONS];
    // Made once, since a request asks the store several times.
    const [ok, unavailable] = [
      { operation, outcome: 'ok' },
      { operation, outcome: 'unavailable' },
    ];
    const succeeded = (result: unknown) => {
      sessionOperations.inc(ok);
      return result;
    };
    const failed = (error: unknown) => {
      sessionOperations.inc(unavailable);
      throw error;
    };
    return [name, (...args: never[]) => call(...args).then(succeeded, failed)];
  });
  return { ...store, ...Object.fromEntries(counted) };
}
