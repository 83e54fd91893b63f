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
  'asgard.message.start': {
    readonly messageStart: {
      readonly message: {
        /** Its id at the bot service, if it has told one. */
        readonly messageId?: string | null | undefined;
      };
    };
  };
  /** `text` is a piece to append. */
  'asgard.message.delta': {
    readonly messageDelta: {
      readonly message: {
        /** Its id at the bot service, if it has told one. */
        readonly messageId?: string | null | undefined;
        /** A piece to append. */
        readonly text: string;
      };
    };
  };
  /** `text` is the whole text. */
  'asgard.message.complete': {
    readonly messageComplete: {
      readonly message: {
        /** Its id at the bot service, if it has told one. */
        readonly messageId?: string | null | undefined;
        /** The whole text. */
        readonly text: string;
        /** Whether the user has stopped it. */
        readonly isStopped?: boolean | null | undefined;
      };
    };
  };
  /** The user has said this, or has sent these files. */
  'asgard.message.user': {
    readonly messageUser: {
      readonly text?: string | null | undefined;
      readonly blobIds?: readonly string[] | null | undefined;
      /** What is known of these files: `fileName` and `mime` (the media type) of each `blobId`. */
      readonly blobs?:
        | readonly {
            /** The id of the file. */
            readonly blobId: string;
            /** Its name. */
            readonly fileName: string;
            /** Its media type. */
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
  /** The bot calls a tool: the same `processId` and `callSeq` mean the same call. */
  'asgard.tool_call.start': {
    readonly toolCallStart: {
      /** With `callSeq`, tells the call from all others. */
      readonly processId: string;
      /** Tells calls with the same `processId` apart. */
      readonly callSeq: number;
      /** The tool that is called. */
      readonly toolCall: {
        /** The tool's name. */
        readonly toolName: string;
        /** The name of the set that it belongs to. */
        readonly toolsetName?: string | null | undefined;
        /** What it is called with. */
        readonly parameter?: unknown;
      };
    };
  };
  /** A tool has answered. It has the members of `toolCallStart`, and `toolCallResult`: what the tool has answered. */
  'asgard.tool_call.complete': {
    readonly toolCallComplete: Facts['asgard.tool_call.start']['toolCallStart'] & {
      /** What the tool has answered. */
      readonly toolCallResult?: unknown;
    };
  };
  /**
   * The bot asks whether it may call these tools. A pending call has the `toolName`, `toolsetName` and `parameter` of a
   * call, and a `toolCallId`, which names it in the user's answer.
   */
  'asgard.tool_call.consent': {
    readonly toolCallConsent: {
      readonly pendingCalls: readonly {
        /** Names the call in the user's answer. */
        readonly toolCallId: string;
        /** The tool's name. */
        readonly toolName: string;
        /** The name of the set that it belongs to. */
        readonly toolsetName?: string | null | undefined;
        /** What it would be called with. */
        readonly parameter?: unknown;
      }[];
    };
  };
}

/**
 * Functions that find out whether the fact of an event has the shape that `Facts` gives it. Each gets the `fact` as it
 * is; if it throws, the event is not known. For the kinds that the client knows itself, none is called.
 */
export type Guards = { readonly [K in keyof Facts]?: (fact: unknown) => fact is Facts[K] };

/** An event whose `fact` was found to have the shape that `Facts` gives it. */
export type KnownEvent<K extends keyof Facts = keyof Facts> = {
  readonly [T in K]: {
    /** Its `fact` has the shape that `Facts` gives it. */
    readonly known: true;
    /** The kind of event. */
    readonly eventType: T;
    /** What it says. */
    readonly fact: Facts[T];
    /** The run that it belongs to: its member `requestId`. */
    readonly runId: string | undefined;
    /** Its id in the stream, if it has one. */
    readonly id: string | undefined;
    /** All of its data: parsed if they are JSON, else the text. */
    readonly raw: unknown;
  };
}[K];

/** Any other event. It may have the `eventType` of a known one, and another shape. */
export interface UnknownEvent {
  /** Its `fact` has no shape that the client knows. */
  readonly known: false;
  /** Its member `eventType`; without one, its name in the stream, which is `message` if it has none. */
  readonly eventType: string;
  /** What it says is in `raw`. */
  readonly fact?: undefined;
  /** The run that it belongs to: its member `requestId`. */
  readonly runId: string | undefined;
  /** Its id in the stream, if it has one. */
  readonly id: string | undefined;
  /** All of its data: parsed if they are JSON, else the text. */
  readonly raw: unknown;
}

/** One event of an answer: `known`, and then `eventType`, narrow its type. */
export type BotEvent = KnownEvent | UnknownEvent;
