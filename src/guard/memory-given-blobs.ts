import { type GivenBlobs, KEPT_MS, MAX_KEPT } from './conversation-blobs.ts';

/** How many conversations are kept; the one with the oldest file goes first. */
const MAX_PLACES = 10_000;

interface Given {
  readonly ids: Set<string>;
  readonly until: number;
}

/** The files of one instance. `now` is in ms. */
export function memoryGivenBlobs(now = Date.now): GivenBlobs {
  const places = new Map<string, Given>();
  const at = (place: string) => {
    const given = places.get(place);
    return given && given.until > now() ? given.ids : new Set<string>();
  };
  return {
    async remember(place, ids) {
      const all = new Set(
        [...at(place)]
          .filter((id) => !ids.includes(id))
          .concat(ids)
          .slice(-MAX_KEPT),
      );
      // The map is in the order of the last file.
      places.delete(place);
      places.set(place, { ids: all, until: now() + KEPT_MS });
      for (const [oldest, { until }] of places) {
        if (places.size <= MAX_PLACES && until > now()) break;
        places.delete(oldest);
      }
    },
    async areGiven(place, ids) {
      const given = at(place);
      return ids.every((id) => given.has(id));
    },
  };
}
