/** What is in order of age knows its place there, in one order at most. Its fields are for this file alone. */
export interface Aged<T> {
  order: InOrderOfAge<T> | undefined;
  older: T | undefined;
  newer: T | undefined;
}

/** What was added, in its order. */
export interface InOrderOfAge<T> {
  /** Adds what is in no order. */
  add(one: T): void;
  delete(one: T): void;
  has(one: T): boolean;
  /** What was added first of all that is still there. */
  oldest(): T | undefined;
}

/** Makes the collection, which is empty. Nothing has to be searched, and nothing grows with it at once. */
export function inOrderOfAge<T extends Aged<T>>(): InOrderOfAge<T> {
  let oldest: T | undefined;
  let newest: T | undefined;
  const order: InOrderOfAge<T> = {
    add(one) {
      one.order = order;
      one.older = newest;
      if (newest) newest.newer = one;
      else oldest = one;
      newest = one;
    },
    delete(one) {
      const { older, newer } = one;
      if (one.order !== order) return;
      if (older) older.newer = newer;
      else oldest = newer;
      if (newer) newer.older = older;
      else newest = older;
      one.order = undefined;
      one.older = undefined;
      one.newer = undefined;
    },
    has: (one) => one.order === order,
    oldest: () => oldest,
  };
  return order;
}
