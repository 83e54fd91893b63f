interface Bounds<Value> {
  readonly maxEntries: number;
  /** How long an entry is kept after it was last used, in ms. */
  readonly maxAgeMs: number;
  /** Called with each value that leaves the map in any way. */
  readonly onLeave?: (value: Value) => void;
}

/** A map that forgets its oldest entries. To read an entry makes it the newest. */
export function boundedMap<Value>({ maxEntries, maxAgeMs, onLeave }: Bounds<Value>) {
  const entries = new Map<string, { value: Value; usedAt: number }>();
  const remove = (key: string): boolean => {
    const entry = entries.get(key);
    if (!entry) return false;
    entries.delete(key);
    onLeave?.(entry.value);
    return true;
  };
  const put = (key: string, value: Value) => {
    entries.delete(key);
    entries.set(key, { value, usedAt: performance.now() });
  };
  const forgetOld = () => {
    const oldest = performance.now() - maxAgeMs;
    for (const [key, { usedAt }] of entries) {
      if (entries.size <= maxEntries && usedAt > oldest) break;
      remove(key);
    }
  };
  return {
    get size() {
      return entries.size;
    },
    get(key: string): Value | undefined {
      forgetOld();
      const entry = entries.get(key);
      if (entry) put(key, entry.value);
      return entry?.value;
    },
    set(key: string, value: Value): void {
      const before = entries.get(key)?.value;
      put(key, value);
      if (before !== undefined && before !== value) onLeave?.(before);
      forgetOld();
    },
    delete: remove,
    /** All values, the oldest first. */
    *values(): IterableIterator<Value> {
      for (const { value } of entries.values()) yield value;
    },
  };
}
