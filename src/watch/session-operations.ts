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
    return [
      name,
      async (...args: never[]) => {
        let outcome = 'unavailable';
        try {
          const result = await call(...args);
          outcome = 'ok';
          return result;
        } finally {
          sessionOperations.inc({ operation, outcome });
        }
      },
    ];
  });
  return { ...store, ...Object.fromEntries(counted) };
}
