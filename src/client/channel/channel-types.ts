import type { Session } from '../session/session-tracker.ts';
import type { BotEvent } from '../transport/bot-event.ts';
import type { RelayError } from '../transport/relay-error.ts';

/** A text. An answer can consist of several, each a paragraph of its own. */
export interface TextPart {
  /** A text. */
  readonly type: 'text';
  /** The text, in which a bot may use Markdown. */
  readonly text: string;
}

/** A file that was uploaded in this channel. */
export interface FilePart {
  /** A file. */
  readonly type: 'file';
  /** `application/octet-stream` if it is not known. */
  readonly mediaType: string;
  /** Missing if it is not known. */
  readonly filename?: string;
  /** Its address, for a link; empty if its name is not known. */
  readonly url: string;
  /** Its id at the bot service. */
  readonly blobId: string;
}

/** A call of a tool. `approval-requested`: it waits for `consent(toolCallId, allow)`. */
export type ToolPart = {
  /** A call of a tool, as the AI SDK names it. */
  readonly type: 'dynamic-tool';
  /** The tool's name. */
  readonly toolName: string;
  /** For `consent`. */
  readonly toolCallId: string;
  /** What it is called with. */
  readonly input: unknown;
} & (
  | { readonly state: 'input-available' }
  | { readonly state: 'approval-requested'; readonly approval: { readonly id: string } }
  | {
      readonly state: 'approval-responded';
      readonly approval: { readonly id: string; readonly approved: boolean };
    }
  | { readonly state: 'output-available'; readonly output: unknown }
);

/** An event that the application has added to `Facts`, with its `fact`. */
export interface DataPart {
  /** `data-` and the event's `eventType`. */
  readonly type: `data-${string}`;
  /** The event's `fact`. */
  readonly data: unknown;
}

/** A piece of a message. `type` tells the kinds apart. */
export type MessagePart = TextPart | FilePart | ToolPart | DataPart;

/** What the user thinks of an answer. */
export type Verdict = 'GOOD' | 'BAD';

/** What is known about a message besides its parts. */
export interface MessageMetadata {
  /** The id of an answer in the relay's log. */
  readonly requestId?: string;
  /**
   * When a message was sent, or an answer began, in ms since 1970; in a history, when the bot service has kept it, if it
   * says so.
   */
  readonly createdAt?: number;
  /** The bot service's id of the last text of an answer, to which `feedback` belongs. */
  readonly messageId?: string;
  /** What the user has said with `feedback`. */
  readonly verdict?: Verdict;
}

/**
 * One message of a channel; the AI SDK takes it as its `UIMessage`. It is never changed in place: a change makes a new
 * object, and a message without a change stays the same object.
 */
export interface ChannelMessage {
  /** Tells it from the other messages of the channel. */
  readonly id: string;
  /** Who says it. */
  readonly role: 'user' | 'assistant';
  /** What it says, in order. */
  readonly parts: MessagePart[];
  /**
   * A user's message is `queued` until it is sent, and then `done`, or `stopped` if it was never sent. An answer is `submitted` (nothing has come yet),
   * `streaming` or `reconnecting`, and ends as `done`, `stopped` or `error`.
   */
  readonly state: 'queued' | 'submitted' | 'streaming' | 'reconnecting' | 'done' | 'stopped' | 'error';
  /** Why the answer is not complete, or its run has failed. */
  readonly error?: RelayError;
  /** What else is known about it. */
  readonly metadata: MessageMetadata;
}

/** Everything that a page shows of a channel. It is never changed in place: a change makes a new object. */
export interface ChannelSnapshot {
  /** What the last run does. `error`: the last message, call or history has failed; the next one clears it. */
  readonly status: 'ready' | 'submitted' | 'streaming' | 'reconnecting' | 'error';
  /** All messages, the oldest first. */
  readonly messages: readonly ChannelMessage[];
  /** What has failed last. */
  readonly error: RelayError | undefined;
  /**
   * Undefined until it is known, null if nobody is signed in. While the relay cannot be asked, `error` says why, and it
   * is asked again with pauses, ten times.
   */
  readonly session: Session | null | undefined;
  /** Whether something that was said before may still be missing in `messages`. */
  readonly isLoading: boolean;
  /** Undefined unless something that was said before is missing for good. Other errors leave it as it is. */
  readonly failedHistory?:
    | {
        /** Why. */
        readonly error: RelayError;
        /** Loads it again. What is shown stays until that has come. Does nothing while an answer is under way. */
        readonly loadAgain: () => void;
      }
    | undefined;
}

/** Whose messages are kept, and of which conversation. */
export interface ChannelKey {
  /** The id of the user. */
  readonly user: string;
  /** The id of the conversation. */
  readonly channelId: string;
}

/**
 * Where a page keeps messages itself, if the bot service gives no history. Keep those of each key apart, so that no user
 * sees those of another. What it throws is the channel's `error`.
 */
export interface MessageStorage {
  /** In a new conversation, `clear` is called in its place. */
  readonly load: (key: ChannelKey) => Promise<readonly ChannelMessage[]>;
  /** Called when a message or an answer is whole. */
  readonly save: (messages: readonly ChannelMessage[], key: ChannelKey) => Promise<void>;
  /** Called by `reset`, when this user has signed out or another one has signed in, and for a new conversation. */
  readonly clear: (key: ChannelKey) => Promise<void>;
}

/** How a channel behaves, and what it calls. */
export interface ChannelOptions {
  /** The id of the conversation. Without it: the default channel of this bot and user, which is kept over a reload. */
  readonly id?: string | undefined;
  /** Shown first. What was said before takes their place. */
  readonly initialMessages?: readonly ChannelMessage[] | undefined;
  /** Keeps the messages if the bot service gives no history, as without the group `chat`. */
  readonly messages?: MessageStorage | undefined;
  /** What `send` does while an answer is under way: fail with the code `busy` (the default), or wait for its end. */
  readonly whileBusy?: 'reject' | 'queue' | undefined;
  /** Called with each event of an answer. What this and the next functions throw is an uncaught error of the page. */
  readonly onEvent?: ((event: BotEvent, message: ChannelMessage) => void) | undefined;
  /** Called with each answer that has ended, also if it was stopped or has failed. */
  readonly onFinish?: ((message: ChannelMessage) => void) | undefined;
  /** Called with each new `error` of the snapshot. */
  readonly onError?: ((error: RelayError) => void) | undefined;
  /** What few pages need. */
  readonly expert?:
    | {
        /** The id of the user whose conversation it is. For another one, the channel stays empty. */
        readonly user?: string | undefined;
        /** How long the channel is kept without a subscriber and without a run, in ms; five minutes by default. */
        readonly gcMs?: number | undefined;
      }
    | undefined;
}

/** A message of the user. */
export interface NewMessage {
  /** What the user says. */
  readonly text?: string | undefined;
  /** What `upload` has resolved with. */
  readonly files?: readonly FilePart[] | undefined;
  /** What else the bot takes, in a form of its own. */
  readonly payload?: unknown;
}

/** How a file is uploaded. */
export interface UploadOptions {
  /** Ends the upload. */
  readonly signal?: AbortSignal | undefined;
  /** Called with the part that has left, from 0 to 1. With a `fetch` of the page's own, only with 1. */
  readonly onProgress?: ((part: number) => void) | undefined;
  /** Called with why it has failed: with several uploads, the snapshot's `error` is that of any. */
  readonly onError?: ((error: RelayError) => void) | undefined;
}

/** A conversation with the bot. Its promises never reject: a failure is the snapshot's `error`. */
export interface Channel {
  /** The id of the conversation; undefined until it is known who is signed in, if it depends on that. */
  readonly id: string | undefined;
  /** Adds a listener, which is called at most once a frame; the returned function removes it, and stops no run. */
  readonly subscribe: (listener: () => void) => () => void;
  /** What to show now. */
  readonly getSnapshot: () => ChannelSnapshot;
  /** What it shows before anything has come, for a server that renders the page. */
  readonly getServerSnapshot: () => ChannelSnapshot;
  /** Sends a message: a paid run. Resolves with its answer when that has ended; undefined if it was not sent. */
  readonly send: (message: string | NewMessage) => Promise<ChannelMessage | undefined>;
  /**
   * Stops what runs in the channel at the bot service, drops what waits, and leaves after 2 seconds at the latest. The
   * next message waits until the bot service has answered, 10 seconds at most. Without the group `chat` it only leaves,
   * and the run may go on.
   */
  readonly stop: () => Promise<void>;
  /**
   * Sends the user's message `id` once more, or the one that the answer `id` belongs to; without an id, the last one.
   * It is a new message at the end, and a new paid run: the bot service cannot take a turn back.
   */
  readonly regenerate: (id?: string) => Promise<ChannelMessage | undefined>;
  /**
   * Answers a tool call for which the bot has asked. When all calls of its message are answered, they are sent, which
   * is a paid run: it resolves with the answer, and before that with undefined.
   */
  readonly consent: (toolCallId: string, allow: boolean | 'always') => Promise<ChannelMessage | undefined>;
  /** Tells the bot service what the user thinks of an answer. Resolves with false if it failed. */
  readonly feedback: (id: string, verdict: Verdict, comment?: string) => Promise<boolean>;
  /** Uploads a file for `send({ files })`. Resolves with undefined if it failed. */
  readonly upload: (file: File, options?: UploadOptions) => Promise<FilePart | undefined>;
  /**
   * Forgets all that was said, at the bot service and here. Resolves with false if it failed. Without the group `chat`,
   * the default channel gets a new id, and each other one fails.
   */
  readonly reset: () => Promise<boolean>;
  /** The address of a file in the conversation's folder, for a link. */
  readonly downloadUrl: (path: string) => string;
}
