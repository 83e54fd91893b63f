import { internalsOf } from '../session/client-internals.ts';
import type { BotEvent } from '../transport/bot-event.ts';
import { baseOf } from '../transport/calls.ts';
import { isObject } from '../transport/known-events.ts';
import { type MessageStream, readOnce, type SendOptions } from '../transport/message-stream.ts';
import { postWithProgress } from '../transport/upload-progress.ts';
import type { UploadOptions } from './channel-types.ts';
import {
  type ConversationMessages,
  conversationMessages,
  dataOf,
  ifMissing,
  POST,
  unexpected,
  wasThere,
} from './conversation-messages.ts';

/** The user's answer to one tool call for which the bot has asked. */
export interface ToolCallConsent {
  readonly toolCallId: string;
  readonly result: 'ALLOW_ONCE' | 'ALLOW_ALWAYS' | 'DENY_ONCE';
}

/** The result for the bot service when the user allows a tool call (`always`: each call of the tool), or does not. */
export function consentResult(allow: boolean | 'always'): ToolCallConsent['result'] {
  if (!allow) return 'DENY_ONCE';
  return allow === 'always' ? 'ALLOW_ALWAYS' : 'ALLOW_ONCE';
}

/** What a user thinks of one message of the bot. */
export interface Feedback {
  readonly messageId: string;
  readonly verdict: 'GOOD' | 'BAD';
  /** At most 8,192 bytes. */
  readonly comment?: string;
}

/** What the bot service knows about a conversation. */
export interface ConversationMetadata {
  readonly title?: string | null;
  /** `RUNNING` while a run is under way. */
  readonly runState?: string;
  readonly [name: string]: unknown;
}

/** One conversation with the bot: what was said under one `customChannelId`. */
export interface BotConversation extends Omit<ConversationMessages, 'upload'> {
  readonly customChannelId: string;
  /** Answers the tool calls for which the bot has asked. This is a paid run, too. */
  consent(toolCallConsents: readonly ToolCallConsent[], options?: SendOptions): MessageStream;
  /** Undefined if the bot service has no such conversation yet. */
  metadata(): Promise<ConversationMetadata | undefined>;
  /**
   * What was said so far, and then each event as it comes, until the bot service ends the stream. Empty if there is no
   * such conversation yet. The bot does not run, so it is resumed after every cut: a message comes again from its start.
   */
  history(options?: Pick<SendOptions, 'signal'>): AsyncIterable<BotEvent>;
  /** Uploads a file, and returns its `blobId` for a message. */
  upload(file: File, options?: UploadOptions): Promise<string>;
  feedback(feedback: Feedback): Promise<void>;
  /** Forgets all that was said. The conversation stays. Returns false if there was none. */
  reset(): Promise<boolean>;
  /** The address of a file, for a link. `path` is its path in the conversation. */
  downloadUrl(path: string): string;
}

/** The conversation `customChannelId` with the bot of the client. */
export function botConversation(client: EventTarget, customChannelId: string): BotConversation {
  const { calls, options } = internalsOf(client);
  const { pathOf, ask, stream } = calls;
  const messages = conversationMessages(client, customChannelId);
  const here = (operation: string, query?: Readonly<Record<string, string>>) =>
    pathOf(operation, { custom_channel_id: customChannelId, ...query });
  return {
    customChannelId,
    ...messages,
    consent: (toolCallConsents, sendOptions) =>
      messages.send({ action: 'RESPONSE_TOOL_CALL_CONSENT', toolCallConsents }, sendOptions),
    metadata: async () => metadataOf(await ask(here('channel/metadata')).catch(ifMissing)),
    history: ({ signal } = {}) =>
      readOnce(unlessMissing(stream(here('message/sse'), {}, { signal, isLive: true }))),
    upload: (file, { signal, onProgress } = {}) =>
      messages.upload(file, { signal, by: onProgress && postWithProgress(onProgress, options.fetch) }),
    async feedback(feedback) {
      const body = JSON.stringify({ customChannelId, comment: '', ...feedback });
      await ask(pathOf('message/feedback'), { ...POST, body });
    },
    reset: () => wasThere(ask(here('channel/clear'), POST)),
    downloadUrl: (path) => baseOf(options) + here('channel-home/download', { relative_path: path }),
  };
}

/** The events; none if the bot service answers 404. */
async function* unlessMissing(events: AsyncIterable<BotEvent>): AsyncGenerator<BotEvent> {
  try {
    yield* events;
  } catch (error) {
    ifMissing(error);
  }
}

/** @throws RelayError if the answer is no object */
function metadataOf(answer: unknown): ConversationMetadata | undefined {
  const data = dataOf(answer);
  if (data === undefined || isObject(data)) return data;
  throw unexpected();
}
