import type { BotEvent } from './bot-event.ts';
import { baseOf } from './calls.ts';
import type { UploadOptions } from './channel-types.ts';
import { partsOf } from './client-parts.ts';
import { isObject } from './is-object.ts';
import type { MessageName } from './message-name.ts';
import type { MessageStream, SendOptions } from './message-stream.ts';
import { randomId } from './random-id.ts';
import { readOnce } from './read-once.ts';
import { RelayError } from './relay-error.ts';
import { unfinished } from './unfinished.ts';
import { postWithProgress } from './upload-progress.ts';

const POST = { method: 'POST' } as const;

interface Named {
  readonly name: MessageName;
  /** Missing if the message was sent before. */
  readonly body?: string;
  readonly options?: SendOptions | undefined;
}

/** The user's answer to one tool call for which the bot has asked. */
export interface ToolCallConsent {
  readonly toolCallId: string;
  readonly result: 'ALLOW_ONCE' | 'ALLOW_ALWAYS' | 'DENY_ONCE';
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

/** One conversation with the bot: what was said under one `customChannelId`. Every promise rejects with RelayError. */
export interface BotConversation {
  readonly customChannelId: string;
  /**
   * Sends a message: its text, or members of the bot's own form, such as `{ text, blobIds }`. It is a paid run. The
   * message stays in this conversation, whatever `customChannelId` it names.
   */
  send(message: string | object, options?: SendOptions): MessageStream;
  /** Answers the tool calls for which the bot has asked. This is a paid run, too. */
  consent(toolCallConsents: readonly ToolCallConsent[], options?: SendOptions): MessageStream;
  /**
   * The answers in this conversation that had not ended when the page was left, the oldest first. Each comes from its
   * beginning if the relay has its run, and is empty if not. It runs nothing.
   */
  resume(options?: SendOptions): MessageStream[];
  /** Undefined if the bot service has no such conversation yet. */
  metadata(): Promise<ConversationMetadata | undefined>;
  /**
   * What was said so far, and then each event as it comes, until the bot service ends the stream. Empty if there is no
   * such conversation yet. It runs nothing, so it is resumed after every cut: a message then comes again from its start.
   */
  history(options?: Pick<SendOptions, 'signal'>): AsyncIterable<BotEvent>;
  /** Stops what runs in the conversation, and drops what waits. Returns false if there was nothing. */
  stop(options?: Pick<SendOptions, 'signal'>): Promise<boolean>;
  /** Uploads a file, and returns its `blobId` for a message. */
  upload(file: File, options?: UploadOptions): Promise<string>;
  feedback(feedback: Feedback): Promise<void>;
  /** Forgets all that was said. It runs nothing, and the conversation stays. Returns false if there was none. */
  reset(): Promise<boolean>;
  /** The address of a file, for a link. `path` is the file's path in the conversation. */
  downloadUrl(path: string): string;
}

/** The conversation `customChannelId` with the bot of the client. */
export function botConversation(client: EventTarget, customChannelId: string): BotConversation {
  const { calls, options } = partsOf(client);
  const { pathOf, ask, stream } = calls;
  const names = unfinished(client);
  const answer = answering(client);
  const here = (operation: string, query?: Readonly<Record<string, string>>) =>
    pathOf(operation, { custom_channel_id: customChannelId, ...query });
  const post = (members: object, sendOptions: SendOptions = {}) => {
    const defaults = { text: '', action: 'NONE', customMessageId: randomId() };
    // A message never leaves its conversation.
    const message = { ...defaults, ...members, customChannelId };
    return answer(pathOf('message/sse'), {
      name: message,
      body: JSON.stringify(message),
      options: sendOptions,
    });
  };
  return {
    customChannelId,
    send: (message, sendOptions) =>
      post(typeof message === 'string' ? { text: message } : message, sendOptions),
    consent: (toolCallConsents, sendOptions) =>
      post({ action: 'RESPONSE_TOOL_CALL_CONSENT', toolCallConsents }, sendOptions),
    resume: (resumeOptions) =>
      names.list(customChannelId).map((name) => answer(undefined, { name, options: resumeOptions })),
    metadata: async () => metadataOf(await ask(here('channel/metadata')).catch(ifMissing)),
    history: ({ signal } = {}) =>
      readOnce(unlessMissing(stream(here('message/sse'), {}, { signal, isLive: true }))),
    stop: ({ signal } = {}) => wasThere(ask(here('message/suspend'), { ...POST, signal })),
    async upload(file, { signal, onProgress } = {}) {
      const body = new FormData();
      body.append('file', file, file.name);
      body.append('customChannelId', customChannelId);
      const by = onProgress && postWithProgress(onProgress, options.fetch);
      return blobIdOf(await ask(pathOf('blob'), { ...POST, body, signal, by }));
    },
    async feedback(feedback) {
      const body = JSON.stringify({ customChannelId, comment: '', ...feedback });
      await ask(pathOf('message/feedback'), { ...POST, body });
    },
    reset: () => wasThere(ask(here('channel/clear'), POST)),
    downloadUrl: (path) => baseOf(options) + here('channel-home/download', { relative_path: path }),
  };
}

/** Makes the function that asks for the answer to a message, whose name is kept until it has ended. */
function answering(client: EventTarget) {
  const { stream } = partsOf(client).calls;
  const names = unfinished(client);
  return (path: string | undefined, { name, body, options: { signal, onState } = {} }: Named) =>
    stream(path, body === undefined ? {} : { ...POST, body }, {
      signal,
      name,
      onAsk: () => names.add(name),
      onState(state, its) {
        if (state === 'done') names.remove(name);
        onState?.(state, its);
      },
    });
}

/** Returns undefined for a 404 of the bot service. @throws all other errors */
function ifMissing(error: unknown): undefined {
  if (!(error instanceof RelayError) || error.code !== 'missing') throw error;
}

/** The events; none if the bot service answers 404. */
async function* unlessMissing(events: AsyncIterable<BotEvent>): AsyncGenerator<BotEvent> {
  try {
    yield* events;
  } catch (error) {
    ifMissing(error);
  }
}

/** False if the bot service answers 404. */
async function wasThere(asked: Promise<unknown>): Promise<boolean> {
  return asked.then(() => true).catch((error) => ifMissing(error) ?? false);
}

/** The content of an answer: the bot service puts it into `data`. */
function dataOf(answer: unknown): unknown {
  return (isObject(answer) && answer.data) || answer;
}

/** @throws RelayError if the answer is no object */
function metadataOf(answer: unknown): ConversationMetadata | undefined {
  const data = dataOf(answer);
  if (data === undefined || isObject(data)) return data;
  throw unexpected('The answer is no metadata.');
}

/** The id of the file in the answer to an upload, which is about one file or a list of one. @throws RelayError */
function blobIdOf(answer: unknown): string {
  const [blob] = [dataOf(answer)].flat();
  if (isObject(blob) && typeof blob.blobId === 'string') return blob.blobId;
  throw unexpected('The answer has no blobId.');
}

function unexpected(message: string): RelayError {
  return new RelayError(message, { code: 'unexpected_response', status: 200 });
}
