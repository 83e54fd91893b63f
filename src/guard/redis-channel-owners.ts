import type { Redis } from '../storage/redis.ts';
import type { ChannelOwners } from './channel-owners.ts';

const redisKey = (channel: string) => `bot-relay:channel-owner:${channel}`;

/** Keeps the owners of conversations for all instances, without expiry: one hash each, with its owner and its places. */
export function redisChannelOwners(redis: Redis): ChannelOwners {
  const claim = redis.script(CLAIM);
  return {
    async find(channel, places) {
      const fields = ['owner', ...places];
      const [owner, ...known] = await redis.run((client) => client.hmGet(redisKey(channel), fields));
      return owner ? { owner, isPlaced: known.some((value) => value !== null) } : undefined;
    },
    async claim(channel, { owner, place }) {
      return String(await claim([redisKey(channel)], [owner, place]));
    },
    release: async (channel) => (await redis.run((client) => client.del(redisKey(channel)))) > 0,
  };
}

/** Gives the conversation to ARGV[1], at the place ARGV[2], unless it has another owner. */
const CLAIM = `
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return owner end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], ARGV[2], '1')
return ARGV[1]
`;
