/** What was added, in its order. Nothing may be added again. */
export interface InOrderOfAge<T> {
  add(one: T): void;
  delete(one: T): void;
  has(one: T): boolean;
  /** What was added first of all that is still there. */
  oldest(): T | undefined;
}

/** From so many on, those at the beginning of the list that are not there any more are cut off. */
const MANY = 1_024;

/** Makes the collection, which is empty. To find the first of a `Set` takes a step for each that was removed before it. */
export function inOrderOfAge<T>(): InOrderOfAge<T> {
  const all = new Set<T>();
  let order: T[] = [];
  let first = 0;
  return {
    add(one) {
      all.add(one);
      order.push(one);
    },
    delete: (one) => void all.delete(one),
    has: (one) => all.has(one),
    oldest() {
      while (first < order.length && !all.has(order[first] as T)) first += 1;
      if (first >= MANY && first * 2 > order.length) {
        order = order.slice(first);
        first = 0;
      }
      return order[first];
    },
  };
}
