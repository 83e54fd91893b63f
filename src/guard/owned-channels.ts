import { Problem } from '../errors.ts';
import { keyPart } from '../storage/redis-key.ts';
import type { ChannelOwners } from './channel-owners.ts';

export interface OwnedChannelsOptions {
  readonly owners: ChannelOwners;
  /** Where the user ids come from. */
  readonly realm: string;
  /** The bot service. */
  readonly service: Readonly<URL>;
}

/** Asks the bot service whether it has no conversation with this id. @throws Problem if it does not say so clearly */
export type IsFree = (id: string) => Promise<boolean>;

/** Who wants to use a conversation, and where. */
export interface ChannelUser {
  readonly userId: string;
  /** `namespace/bot`. */
  readonly bot: string;
  /** Given if the request may begin a conversation. */
  readonly isFree?: IsFree | undefined;
}

/** Conversations that belong to the user who has begun them. */
export interface OwnedChannels {
  /**
   * Lets a user pass to the conversation `id` if it is theirs. A request that may begin a conversation makes it theirs
   * if nobody owns it and the bot service does not have it.
   * @throws Problem `invalid_conversation`, `not_your_conversation`, `session_store_unavailable`, and those of `isFree`
   */
  require(id: string, user: ChannelUser): Promise<void>;
  /**
   * Makes the conversation `id` that of a user, at every bot, without asking the service. Returns false if it belongs
   * to another user. @throws Problem `invalid_conversation` or `session_store_unavailable`
   */
  give(id: string, userId: string): Promise<boolean>;
  /**
   * Takes the conversation `id` away from its user, at every bot. Returns false if it belongs to nobody.
   * @throws Problem `invalid_conversation` or `session_store_unavailable`
   */
  release(id: string): Promise<boolean>;
}

/** No character of it needs an escape anywhere, or is equal to another one in any comparison but that without case. */
const OWNED_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/**
 * An id belongs to one user of the whole service, in upper or lower case. But the service may know another
 * conversation by the same id at another bot, or in another case: so each of these places is claimed on its own.
 */
export function ownedChannels({ owners, realm, service }: OwnedChannelsOptions): OwnedChannels {
  const serviceName = service.href.replace(/\/+$/, '');
  const channelOf = (id: string) => nameOf(serviceName, checked(id).toLowerCase());
  const ownerOf = (userId: string) => nameOf(realm, userId);
  return {
    async require(id, { userId, bot, isFree }) {
      const [channel, owner, place] = [channelOf(id), ownerOf(userId), nameOf(bot, id)];
      const isMine = async () => {
        const found = await owners.find(channel, [place, nameOf(id)]);
        if (found && found.owner !== owner) throw notYours();
        return found?.isPlaced === true;
      };
      if (await isMine()) return;
      if (!isFree) throw notYours();
      if (!(await isFree(id))) {
        // Another message of the same user may have begun it meanwhile.
        if (await isMine()) return;
        throw notYours();
      }
      if ((await owners.claim(channel, { owner, place })) !== owner) throw notYours();
    },
    async give(id, userId) {
      const owner = ownerOf(userId);
      return (await owners.claim(channelOf(id), { owner, place: nameOf(id) })) === owner;
    },
    release: async (id) => owners.release(channelOf(id)),
  };
}

/** One name for a list of texts; as JSON, no two lists are the same. */
function nameOf(...texts: readonly string[]): string {
  return keyPart(JSON.stringify(texts));
}

function checked(id: string): string {
  if (OWNED_ID.test(id)) return id;
  const detail =
    "The conversation's id must be 1 to 128 letters, digits, dots, underscores, colons or hyphens.";
  throw new Problem('invalid_conversation', detail);
}

function notYours(): Problem {
  return new Problem('not_your_conversation', 'This conversation is not one of yours; begin another one.');
}
