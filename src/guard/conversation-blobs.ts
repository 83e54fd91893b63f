import { Problem } from '../errors.ts';
import { jsonMembers } from '../http/json.ts';
import { similarTo } from './channel-places.ts';
import type { Conversation } from './conversations.ts';

/** Remembers which files a user was given in a conversation, for a day after the last of them. */
export interface GivenBlobs {
  /** `ownerKey` names the user and the conversation. The oldest ids are forgotten if there are too many. */
  remember(ownerKey: string, ids: readonly string[]): Promise<void>;
  /** Whether all of `ids` were given there. */
  areGiven(ownerKey: string, ids: readonly string[]): Promise<boolean>;
}

/** How long after the last file of a conversation its ids are kept, in ms. */
export const KEPT_MS = 24 * 60 * 60 * 1000;
/** How many ids of one conversation are kept. */
export const MAX_KEPT = 256;

/** Whose file it is, and in which conversation of which bot. */
interface BlobOwner {
  /** `namespace/bot`. */
  readonly bot: string;
  readonly userId: string;
  readonly conversation: Conversation | undefined;
}

/** Keeps users from the files of others. */
export interface ConversationBlobs {
  /** Remembers the ids in JSON with which the bot service has answered an upload. */
  remember(json: Buffer, owner: BlobOwner): Promise<void>;
  /**
   * Lets a message pass if all its files were given to this user in this conversation; every message if uploads are off.
   * @throws Problem `not_your_conversation`, `invalid_conversation`, `session_store_unavailable`
   */
  check(json: Buffer, owner: BlobOwner): Promise<void>;
}

interface ConversationBlobsOptions {
  readonly given: GivenBlobs;
  /** Where the user ids come from. */
  readonly realm: string;
  /** Whether `namespace/bot` takes files from pages. */
  readonly takesFiles: (bot: string) => boolean;
}

/** How many files one message may have, and one answer. */
const MAX_IDS = 100;
const MAX_ID_LENGTH = 256;
const NAME = 'blobIds';
const isSimilar = similarTo('blobids');

/** Makes the check and the memory of files, which are kept in `given`. */
export function conversationBlobs(options: ConversationBlobsOptions): ConversationBlobs {
  const { given, realm, takesFiles } = options;
  const ownerKeyOf = ({ bot, userId }: BlobOwner, { upstream }: Conversation) =>
    JSON.stringify([realm, userId, bot, upstream]);
  async function checkGiven(ids: readonly string[], owner: BlobOwner): Promise<void> {
    const { conversation } = owner;
    const areGiven = conversation && (await given.areGiven(ownerKeyOf(owner, conversation), ids));
    if (!areGiven)
      throw new Problem('not_your_conversation', 'A file of the message is not of this conversation.');
  }
  return {
    async remember(json, owner) {
      const ids = idsIn(json).slice(0, MAX_IDS);
      if (owner.conversation && ids.length > 0)
        await given.remember(ownerKeyOf(owner, owner.conversation), ids);
    },
    async check(json, owner) {
      if (!takesFiles(owner.bot)) return;
      const ids = blobIdsOf(json);
      if (ids.length > 0) await checkGiven(ids, owner);
    },
  };
}

/** The ids of the files that an answer names, wherever they stand in it. */
function idsIn(json: Buffer): string[] {
  const ids: string[] = [];
  if (json.length === 0) return ids;
  // Without recursion, since the service may answer with very many levels. The list grows while it is read.
  const values: unknown[] = [JSON.parse(json.toString('utf8'))];
  for (const value of values) {
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, member] of Object.entries(value)) {
      if (name === 'blobId' && isUsable(member)) ids.push(member);
      else values.push(member);
    }
  }
  return ids;
}

/** The files that a message names. Its members' names were checked before. @throws Problem `invalid_conversation` */
function blobIdsOf(json: Buffer): readonly string[] {
  const found = jsonMembers(json).filter(({ name }) => isSimilar(name));
  const [member, ...more] = found;
  if (!member) return [];
  const value: unknown = JSON.parse(json.toString('utf8', member.from, member.to));
  const isList = Array.isArray(value) && value.length <= MAX_IDS && value.every(isUsable);
  if (member.name !== NAME || more.length > 0 || !(isList || value === null))
    throw new Problem('invalid_conversation', `The files of a message must be one list, named ${NAME}.`);
  return isList ? value : [];
}

function isUsable(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= MAX_ID_LENGTH && id.isWellFormed();
}
