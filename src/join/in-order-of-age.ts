/** What was added, in its order. Nothing may be added again. */
export interface InOrderOfAge<T> {
  add(one: T): void;
  delete(one: T): void;
  has(one: T): boolean;
  /** What was added first of all that is still there. */
  oldest(): T | undefined;
}

/** The list has at most twice as many places as there are values, and so many. */
const SPARE = 1_024;

/** Makes the collection, which is empty. In a `Set`, the way to the first leads over all that were removed before it. */
export function inOrderOfAge<T>(): InOrderOfAge<T> {
  const all = new Set<T>();
  let order: T[] = [];
  let first = 0;
  return {
    add(one) {
      all.add(one);
      order.push(one);
    },
    delete(one) {
      // The removed one may be behind an older one that stays for long. A set has its values in their order.
      if (!all.delete(one) || order.length <= 2 * all.size + SPARE) return;
      order = [...all];
      first = 0;
    },
    has: (one) => all.has(one),
    oldest() {
      while (first < order.length && !all.has(order[first] as T)) first += 1;
      return order[first];
    },
  };
}
