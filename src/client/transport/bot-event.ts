/** A message that the bot writes. */
export interface BotMessage {
  /** Its id at the bot service, if it has told one. */
  readonly messageId?: string | null | undefined;
}

/** A text that the bot writes: a piece of it, or the whole. */
export interface TextMessage extends BotMessage {
  /** A piece or the whole: see the events in `Facts`. */
  readonly text: string;
  /** Whether the user has stopped it. */
  readonly isStopped?: boolean | null | undefined;
}

/** A call of a tool: the same `processId` and `callSeq` mean the same call. */
export interface CalledTool {
  /** With `callSeq`, tells the call from all others. */
  readonly processId: string;
  /** Tells calls with the same `processId` apart. */
  readonly callSeq: number;
  /** The tool that is called. */
  readonly toolCall: Tool;
}

/** A tool, and what it is called with. */
export interface Tool {
  /** The tool's name. */
  readonly toolName: string;
  /** The name of the set that it belongs to. */
  readonly toolsetName?: string | null | undefined;
  /** What it is called with. */
  readonly parameter?: unknown;
}

/** A tool call that waits for the user's consent. */
export interface PendingCall extends Tool {
  /** Names the call in the user's answer. */
  readonly toolCallId: string;
}

/**
 * The `fact` of each kind of event that the client knows, as it is seen in the field: no specification names them.
 * Applications add kinds of their own to it, and a guard for each to the option `guards`.
 */
export interface Facts {
  /** The run has begun. */
  'asgard.run.init': { readonly runInit: object };
  /** The run has ended. */
  'asgard.run.done': { readonly runDone: object };
  /** The run has failed. */
  'asgard.run.error': {
    readonly runError: {
      readonly error: { readonly message: string; readonly code?: string | null | undefined };
    };
  };
  /** A message begins, or comes again from its start. */
  'asgard.message.start': { readonly messageStart: { readonly message: BotMessage } };
  /** `text` is a piece to append. */
  'asgard.message.delta': { readonly messageDelta: { readonly message: TextMessage } };
  /** `text` is the whole text. */
  'asgard.message.complete': { readonly messageComplete: { readonly message: TextMessage } };
  /** The user has said this, or has sent these files. */
  'asgard.message.user': {
    readonly messageUser: {
      readonly text?: string | null | undefined;
      readonly blobIds?: readonly string[] | null | undefined;
      /** What is known of these files. */
      readonly blobs?:
        | readonly {
            readonly blobId: string;
            readonly fileName: string;
            readonly mime?: string | null | undefined;
          }[]
        | null
        | undefined;
    };
  };
  /** What the user thinks of a message. */
  'asgard.message.feedback': {
    readonly messageFeedback: { readonly targetMessageId: string; readonly verdict: string };
  };
  /** The bot calls a tool. */
  'asgard.tool_call.start': { readonly toolCallStart: CalledTool };
  /** A tool has answered. */
  'asgard.tool_call.complete': {
    readonly toolCallComplete: CalledTool & { readonly toolCallResult?: unknown };
  };
  /** The bot asks whether it may call these tools. */
  'asgard.tool_call.consent': { readonly toolCallConsent: { readonly pendingCalls: readonly PendingCall[] } };
}

/**
 * Functions that find out whether the fact of an event has the shape that `Facts` gives it. Each gets the `fact` as it
 * is; if it throws, the event is not known. For the kinds that the client knows itself, none is called.
 */
export type Guards = { readonly [K in keyof Facts]?: (fact: unknown) => fact is Facts[K] };

/** What every event has. */
export interface EventHead {
  /** The run that it belongs to: its member `requestId`. */
  readonly runId: string | undefined;
  /** Its id in the stream, if it has one. */
  readonly id: string | undefined;
  /** All of its data: parsed if they are JSON, else the text. */
  readonly raw: unknown;
}

/** An event whose `fact` was found to have the shape that `Facts` gives it. */
export type KnownEvent<K extends keyof Facts = keyof Facts> = {
  readonly [T in K]: EventHead & {
    /** Its `fact` has the shape that `Facts` gives it. */
    readonly known: true;
    /** The kind of event. */
    readonly eventType: T;
    /** What it says. */
    readonly fact: Facts[T];
  };
}[K];

/** Any other event. It may have the `eventType` of a known one, and another shape. */
export interface UnknownEvent extends EventHead {
  /** Its `fact` has no shape that the client knows. */
  readonly known: false;
  /** Its member `eventType`; without one, its name in the stream, which is `message` if it has none. */
  readonly eventType: string;
  /** What it says is in `raw`. */
  readonly fact?: undefined;
}

/** One event of an answer: `known`, and then `eventType`, narrow its type. */
export type BotEvent = KnownEvent | UnknownEvent;
