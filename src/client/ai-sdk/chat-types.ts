import type { MessageMetadata } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';

/** A piece of an answer: those of the AI SDK's `UIMessageChunk` that an answer of a bot can have. */
export type AnswerChunk =
  | { readonly type: 'start'; readonly messageId?: string; readonly messageMetadata: MessageMetadata }
  | { readonly type: 'start-step' | 'finish-step' | 'reset-step' }
  | { readonly type: 'finish'; readonly messageMetadata: MessageMetadata }
  | { readonly type: 'text-start' | 'text-end'; readonly id: string }
  | { readonly type: 'text-delta'; readonly id: string; readonly delta: string }
  | {
      readonly type: 'tool-input-available';
      readonly toolCallId: string;
      readonly toolName: string;
      readonly input: unknown;
      readonly dynamic: true;
      /** The bot service calls it, not the page. */
      readonly providerExecuted: true;
    }
  | { readonly type: 'tool-approval-request'; readonly toolCallId: string; readonly approvalId: string }
  | { readonly type: 'tool-output-available'; readonly toolCallId: string; readonly output: unknown }
  | { readonly type: `data-${string}`; readonly data: unknown };

/** What is read of a `UIMessage` of the AI SDK. */
export interface ChatMessage {
  /** Its id in the chat. */
  readonly id: string;
  /** Who says it. */
  readonly role: 'system' | 'user' | 'assistant';
  /** What it says, in order. */
  readonly parts: readonly { readonly type: string }[];
}

/** What the AI SDK asks for: the answer to the last message of a chat. */
export interface ChatRequest {
  /** Whether it is a new message, or an answer is asked for again. */
  readonly trigger: 'submit-message' | 'regenerate-message';
  /** The id of the chat, which names the conversation. */
  readonly chatId: string;
  /** The message that `trigger` is about, if it names one. */
  readonly messageId: string | undefined;
  /** All messages of the chat, the oldest first. */
  readonly messages: readonly ChatMessage[];
  /** Stops the answer. */
  readonly abortSignal: AbortSignal | undefined;
  /** Members of the bot's own form, such as `payload`. */
  readonly body?: object | undefined;
}

/** The answer that a chat goes on with. */
export interface ReconnectRequest {
  /** The id of the chat, which names the conversation. */
  readonly chatId: string;
  /** Stops the answer. */
  readonly abortSignal?: AbortSignal | undefined;
}

/**
 * A `ChatTransport` of the AI SDK, which has the types of its requests and of the pieces of an answer. Its promises and
 * its streams fail with `RelayError`.
 */
export interface BotChatTransport {
  /** A joined answer comes from its beginning. */
  readonly resumeStreamIsReplay: true;
  /** Sends the last message of the chat, or what the user has decided about tool calls. It is a paid run. */
  readonly sendMessages: (request: ChatRequest) => Promise<ReadableStream<AnswerChunk>>;
  /** Joins the answer that had not ended when the page was left; null if there is none. It runs nothing. */
  readonly reconnectToStream: (request: ReconnectRequest) => Promise<ReadableStream<AnswerChunk> | null>;
}

/** What a page can set for a transport. */
export interface BotChatTransportOptions {
  /**
   * What `regenerate` does. It is a new paid run, and the bot service keeps the former answer, too: `reject` refuses it
   * (the default), `new-run` sends the message once more. A message that surely did not run is sent in both cases.
   */
  readonly regenerate?: 'reject' | 'new-run' | undefined;
  /**
   * Called when the user has signed out or another one has signed in, also in another tab: the page empties its chats.
   * The transport has left their answers.
   */
  readonly onUserLeft?: (() => void) | undefined;
  /** Called when the bot service could not be told to stop: the run may go on. */
  readonly onStopError?: ((error: RelayError) => void) | undefined;
}
