import { type GivenBlobs, KEPT_MS, MAX_KEPT } from './conversation-blobs.ts';

/** How many conversations are kept; the one with the oldest file goes first. */
const MAX_CONVERSATIONS = 10_000;

interface Given {
  readonly ids: Set<string>;
  readonly until: number;
}

/** The files of one instance. `now` is in ms. */
export function memoryGivenBlobs(now = Date.now): GivenBlobs {
  const known = new Map<string, Given>();
  const at = (ownerKey: string) => {
    const given = known.get(ownerKey);
    return given && given.until > now() ? given.ids : new Set<string>();
  };
  return {
    async remember(ownerKey, ids) {
      const all = new Set(
        [...at(ownerKey)]
          .filter((id) => !ids.includes(id))
          .concat(ids)
          .slice(-MAX_KEPT),
      );
      // The map is in the order of the last file.
      known.delete(ownerKey);
      known.set(ownerKey, { ids: all, until: now() + KEPT_MS });
      for (const [oldest, { until }] of known) {
        if (known.size <= MAX_CONVERSATIONS && until > now()) break;
        known.delete(oldest);
      }
    },
    async areGiven(ownerKey, ids) {
      const given = at(ownerKey);
      return ids.every((id) => given.has(id));
    },
  };
}
