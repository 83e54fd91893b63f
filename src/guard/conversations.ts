import { Problem } from '../errors.ts';
import { isJsonObject, type JsonMember } from '../http/json.ts';
import type { Secret } from '../secret.ts';
import { channelInForm, channelInJson, channelInQuery, namedMembers, withChannel } from './channel-places.ts';
import { scopedChannelId } from './scoped-channels.ts';

/** One conversation, by its two ids. They are the same unless `CHANNELS=scoped`. */
export interface Conversation {
  /** The id that the client uses. */
  readonly client: string;
  /** The id that the bot service knows. */
  readonly upstream: string;
}

/** A request that names a conversation, or may do so. */
export interface ConversationRequest {
  /** The target of the client's request. */
  readonly url: string;
  readonly userId: string;
}

/**
 * Finds the conversation of a request. With `CHANNELS=scoped`, a user reaches their own ones only.
 * @throws Problem `invalid_conversation` or `invalid_query` from each method
 */
export interface Conversations {
  /**
   * The conversation of a message, and the message's JSON with the upstream id in its place; every other byte stays. A
   * message without an id is not changed.
   */
  ofMessage(json: Buffer, request: ConversationRequest): ReadConversation;
  /** As `ofMessage`, for another operation, which must name a conversation. */
  ofJson(
    json: Buffer,
    request: ConversationRequest,
  ): ReadConversation & { readonly conversation: Conversation };
  /** The conversation that the query must name. */
  ofQuery(request: ConversationRequest): Conversation;
  /**
   * The conversation that the text `name` of a form names; the query may have the same id.
   * @throws Problem `invalid_form` if the text has another name
   */
  ofForm(text: { readonly name: string; readonly value: string }, request: ConversationRequest): Conversation;
}

/** The JSON of a message for the bot service, and the conversation that it names. */
export interface ReadConversation {
  readonly body: Buffer;
  readonly conversation: Conversation | undefined;
}

export interface ConversationsOptions {
  /** `scoped`: each user has conversations of their own. `shared`: any user who knows an id reaches its conversation. */
  readonly mode: 'scoped' | 'shared';
  /** Makes the upstream ids. */
  readonly secret: Secret;
  /** Where the user ids come from: the same id in another realm is another user. */
  readonly realm: string;
}

/** Names of members by which some parsers of JSON give an object other members. */
const INHERITED: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype']);

/** Makes the finder of conversations. */
export function conversations({ mode, secret, realm }: ConversationsOptions): Conversations {
  function conversationOf(client: string, { userId }: ConversationRequest): Conversation {
    return {
      client,
      upstream: mode === 'scoped' ? scopedChannelId(secret, { realm, userId, id: client }) : client,
    };
  }
  function ofMessage(json: Buffer, request: ConversationRequest): ReadConversation {
    const members = namedMembers(json);
    const placed = channelInJson(json, members);
    const inQuery = channelInQuery(request.url);
    if (inQuery !== undefined && inQuery !== placed?.id)
      throw invalid("The conversation's id in the query must be that of the body.");
    if (mode === 'scoped') refuseOtherPlaces(json, members);
    if (!placed) return { body: json, conversation: undefined };
    const conversation = conversationOf(placed.id, request);
    return {
      body: mode === 'scoped' ? withChannel(json, placed, conversation.upstream) : json,
      conversation,
    };
  }
  return {
    ofMessage,
    ofForm({ name, value }, request) {
      const client = channelInForm(name, value);
      const inQuery = channelInQuery(request.url);
      if (inQuery !== undefined && inQuery !== client)
        throw invalid("The conversation's id in the query must be that of the form.");
      return conversationOf(client, request);
    },
    ofJson(json, request) {
      const { body, conversation } = ofMessage(json, request);
      if (!conversation) throw invalid('The body must hold customChannelId.');
      return { body, conversation };
    },
    ofQuery(request) {
      const client = channelInQuery(request.url);
      if (client === undefined) throw invalid('The query must hold custom_channel_id.');
      return conversationOf(client, request);
    },
  };
}

/** Refuses a body in which some service may find an id elsewhere: in an array, or in an inherited member. */
function refuseOtherPlaces(json: Buffer, members: readonly JsonMember[]): void {
  if (!isJsonObject(json)) throw invalid('The body must be a JSON object.');
  if (members.some(({ name }) => INHERITED.has(name)))
    throw invalid(`The body must not hold ${[...INHERITED].join(' or ')}.`);
}

function invalid(detail: string): Problem {
  return new Problem('invalid_conversation', detail);
}
