/** A message that the bot writes. */
interface BotMessage {
  readonly messageId?: string | null | undefined;
}

interface TextMessage extends BotMessage {
  readonly text: string;
}

/** A call of a tool: the same `processId` and `callSeq` mean the same call. */
interface CalledTool {
  readonly processId: string;
  readonly callSeq: number;
  readonly toolCall: Tool;
}

/** A tool, and what it is called with. */
export interface Tool {
  readonly toolName: string;
  readonly toolsetName?: string | null | undefined;
  readonly parameter?: unknown;
}

/** A tool call that waits for the user's consent. */
export interface PendingCall extends Tool {
  readonly toolCallId: string;
}

/**
 * The `fact` of each kind of event that the client knows, as it is seen in the field: no specification names them.
 * Applications add kinds of their own to it, and a guard for each to the option `guards`.
 */
export interface Facts {
  'asgard.run.init': { readonly runInit: object };
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
    };
  };
  /** What the user thinks of a message. */
  'asgard.message.feedback': {
    readonly messageFeedback: { readonly targetMessageId: string; readonly verdict: string };
  };
  'asgard.tool_call.start': { readonly toolCallStart: CalledTool };
  'asgard.tool_call.complete': {
    readonly toolCallComplete: CalledTool & { readonly toolCallResult?: unknown };
  };
  /** The bot asks whether it may call these tools. */
  'asgard.tool_call.consent': { readonly toolCallConsent: { readonly pendingCalls: readonly PendingCall[] } };
}

/** Functions that find out whether the fact of an event has the shape that `Facts` gives it. */
export type Guards = { readonly [K in keyof Facts]?: (fact: unknown) => fact is Facts[K] };

interface EventHead {
  /** The run that it belongs to: its member `requestId`. */
  readonly runId: string | undefined;
  /** Its id in the stream, if it has one. */
  readonly id: string | undefined;
  /** All of its data: parsed if they are JSON, else the text. */
  readonly raw: unknown;
}

/** An event whose `fact` was found to have the shape that `Facts` gives it. */
export type KnownEvent<K extends keyof Facts = keyof Facts> = {
  readonly [T in K]: EventHead & { readonly known: true; readonly eventType: T; readonly fact: Facts[T] };
}[K];

/** Any other event. It may have the `eventType` of a known one, and another shape. */
export interface UnknownEvent extends EventHead {
  readonly known: false;
  /** Its member `eventType`; without one, its name in the stream, which is `message` if it has none. */
  readonly eventType: string;
  /** What it says is in `raw`. */
  readonly fact?: undefined;
}

/** One event of an answer: `known` says whether its `fact` can be used. */
export type BotEvent = KnownEvent | UnknownEvent;
