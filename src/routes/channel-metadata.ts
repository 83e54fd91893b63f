import type { Problem } from '../errors.ts';
import { badResponse, rateLimited } from '../relay/operations/judge-operation.ts';
import { CHANNEL_METADATA } from '../relay/operations/operation-table.ts';
import type { AskService, OwnAnswer, OwnRequest } from './own-request.ts';

/** Who asks for the metadata of a conversation, and in which request. */
export type AboutChannel = Omit<OwnRequest, 'operation' | 'query'>;

/**
 * Asks the bot service for the metadata of the conversation with its id `channel`. Resolves with its JSON, or with
 * undefined if the bot has no such conversation.
 * @throws Problem of `AskService`, `upstream_rate_limited`, or `upstream_bad_response` if the answer says neither
 */
export type AskMetadata = (channel: string, about: AboutChannel) => Promise<Buffer | undefined>;

/** Makes the question; `ask` sends it. */
export function channelMetadata(ask: AskService): AskMetadata {
  return async function askMetadata(channel, about) {
    const query = new URLSearchParams({ custom_channel_id: channel });
    const answer = await ask({ ...about, operation: CHANNEL_METADATA, query });
    const { status, json } = answer;
    // Only JSON is from the service itself: a 404 of a proxy on the way says nothing about the conversation.
    if (json && status === 404) return undefined;
    if (json && status >= 200 && status < 300) return json;
    throw problemOf(answer);
  };
}

function problemOf({ status, retryAfter, json }: OwnAnswer): Problem {
  if (status === 429) return rateLimited(retryAfter);
  return badResponse(`status ${status}${json ? '' : ', no JSON'}, of the conversation's metadata`);
}
