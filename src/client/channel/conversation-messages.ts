import type { MessageName } from '../session/bot-calls.ts';
import { internalsOf } from '../session/client-internals.ts';
import { toldMessages } from '../session/told-messages.ts';
import { unfinished } from '../session/unfinished.ts';
import { randomId } from '../transport/calls.ts';
import { isObject } from '../transport/known-events.ts';
import type { MessageStream, SendOptions } from '../transport/message-stream.ts';
import { RelayError } from '../transport/relay-error.ts';

/** The options of a call that changes something. */
export const POST = { method: 'POST' } as const;

/** A message whose answer is asked for. */
interface Asked {
  readonly name: MessageName;
  /** Missing if the message was sent before. */
  readonly body?: string;
  readonly options?: SendOptions | undefined;
}

interface FileUpload {
  readonly signal?: AbortSignal | undefined;
  /** In place of the client's `fetch`. */
  readonly by?: typeof fetch | undefined;
}

/** The messages and files of a conversation. Every promise rejects with RelayError. */
export interface ConversationMessages {
  /**
   * Sends a message: its text, or members of the bot's own form, such as `{ text, blobIds }`. It is a paid run. The
   * message stays in this conversation, whatever `customChannelId` it names.
   */
  send(message: string | object, options?: SendOptions): MessageStream;
  /**
   * The answers that had not ended when the page was left, the oldest first. If the relay has the run of an answer, it
   * comes from its beginning, else it is empty. The bot does not run.
   */
  resume(options?: SendOptions): MessageStream[];
  /** Stops what runs in the conversation, and drops what waits. Returns false if there was nothing. */
  stop(options?: Pick<SendOptions, 'signal'>): Promise<boolean>;
  /** Uploads a file, and returns its `blobId` for a message. */
  upload(file: File, options?: FileUpload): Promise<string>;
}

/** The messages of the conversation `customChannelId` with the bot of the client. */
export function conversationMessages(client: EventTarget, customChannelId: string): ConversationMessages {
  const { pathOf, ask, stream } = internalsOf(client).calls;
  const names = unfinished(client);
  const { tell } = toldMessages(client);
  /** Asks for the answer to a message. Its name is kept until the answer has ended. */
  const answer = (path: string | undefined, { name, body, options = {} }: Asked) => {
    const { signal, onState } = options;
    return stream(path, body === undefined ? {} : { ...POST, body }, {
      signal,
      name,
      onAsk: () => names.add(name),
      onState(state, answering) {
        if (state === 'done') names.remove(name);
        // The bot service has the message now, or its whole answer.
        if (state !== 'waiting') tell(name);
        onState?.(state, answering);
      },
    });
  };
  return {
    send(message, options) {
      const defaults = { text: '', action: 'NONE', customMessageId: randomId() };
      const members = typeof message === 'string' ? { text: message } : message;
      // Whatever a page gives as the conversation of the message.
      const name = { ...defaults, ...members, customChannelId };
      return answer(pathOf('message/sse'), { name, body: JSON.stringify(name), options });
    },
    resume: (options) => names.list(customChannelId).map((name) => answer(undefined, { name, options })),
    stop: ({ signal } = {}) =>
      wasThere(ask(pathOf('message/suspend', { custom_channel_id: customChannelId }), { ...POST, signal })),
    async upload(file, options) {
      const body = new FormData();
      body.append('file', file, file.name);
      body.append('customChannelId', customChannelId);
      return blobIdOf(await ask(pathOf('blob'), { ...POST, body, ...options }));
    },
  };
}

/** The id of the file in the answer to an upload, which is one file or a list of one. @throws RelayError */
function blobIdOf(answer: unknown): string {
  const [blob] = [dataOf(answer)].flat();
  if (isObject(blob) && typeof blob.blobId === 'string') return blob.blobId;
  throw unexpected();
}

/** Undefined for a 404 of the bot service. @throws all other errors */
export function ifMissing(error: unknown): undefined {
  if (!(error instanceof RelayError) || error.code !== 'missing') throw error;
}

/** False if the bot service answers 404. */
export async function wasThere(asked: Promise<unknown>): Promise<boolean> {
  return asked.then(() => true).catch((error) => ifMissing(error) ?? false);
}

/** The content of an answer: the bot service puts it into `data`. */
export function dataOf(answer: unknown): unknown {
  return (isObject(answer) && answer.data) || answer;
}

/** The error of an answer that is not what the bot service gives. */
export function unexpected(): RelayError {
  return new RelayError('The answer is not valid.', { code: 'unexpected_response', status: 200 });
}
