import type { ChannelOwners } from './channel-owners.ts';

/** Keeps the owners of conversations in the memory of this process. */
export function memoryChannelOwners(): ChannelOwners {
  const channels = new Map<string, { readonly owner: string; readonly places: Set<string> }>();
  return {
    async find(channel, places) {
      const known = channels.get(channel);
      return known && { owner: known.owner, isPlaced: places.some((place) => known.places.has(place)) };
    },
    async claim(channel, { owner, place }) {
      const known = channels.get(channel) ?? { owner, places: new Set() };
      if (known.owner !== owner) return known.owner;
      known.places.add(place);
      channels.set(channel, known);
      return owner;
    },
    release: async (channel) => channels.delete(channel),
  };
}
