/** What a bot is asked: the message, and what the service knows about it. */
export interface Ask {
  /** A nudge has neither text nor files. A consent answers a tool call that waited for it. */
  readonly kind: 'message' | 'nudge' | 'consent';
  readonly text: string;
  /** Whether the bot may call its tools without asking the user. */
  readonly isAllowed: boolean;
  /** The files that came with the message. */
  readonly files: readonly AskedFile[];
  /** What `remember` kept in this conversation, oldest first, each run's as one list; none without a channel. */
  readonly turns: readonly Turn[];
}

/** The messages of one run in the form of the AI SDK, as JSON values. */
export type Turn = readonly unknown[];

export interface AskedFile {
  readonly name: string;
  /** Its media type, if the sender gave one. */
  readonly type: string;
  readonly bytes: Buffer;
}

/** A call of a tool. */
export interface ToolCall {
  readonly toolsetName: string;
  readonly toolName: string;
  readonly parameter: object;
}

/**
 * A step of a run. A message is kept only once it is completed; one that is open at the end of the run or at a suspend
 * is completed then, and one that is open at an error is not. A tool call that has started ends with the next
 * `toolResult` of its `id`. `remember` adds messages to the turn of this run, in one transaction with what the same step
 * completes; it stands alone where nothing is completed.
 */
export type Step =
  | { readonly startMessage: true }
  | { readonly say: string }
  | { readonly completeMessage: true; readonly remember?: Turn }
  | { readonly remember: Turn }
  | { readonly startTool: ToolCall; readonly id: string }
  | { readonly toolResult: object; readonly id: string }
  | { readonly askConsent: ToolCall }
  /** Cuts the connection, as a network does. */
  | { readonly breakOff: true }
  /** Ends the run by an error of the service. */
  | { readonly error: RunError };

/** `code` is for programs, `message` a plain sentence for people. */
export interface RunError {
  readonly code: string;
  readonly message: string;
}

/** Finds pieces of a project's documents, the best first. */
export type Search = (query: string, signal: AbortSignal) => Promise<readonly Found[]>;

/** A piece of a document. */
export interface Found {
  readonly text: string;
  /** What names the document. */
  readonly source: string;
}

/** What answers a message: a script, or a model. */
export interface Brain {
  /** Whether its runs can be resumed without a channel. With one, every run can. */
  readonly isResumable: boolean;
  /** What `GET metadata` says of the bot. */
  readonly metadata: object;
  /** Whether each of its channels has a sandbox. */
  readonly hasSandbox: boolean;
  /** What it remembers of an answer that the user stops; `said` is what the open message says, empty if none is open. */
  readonly stopped?: (said: string) => Turn;
  /** Answers until it is done, or until `signal` aborts; then it throws. */
  answer(ask: Ask, signal: AbortSignal): AsyncIterable<Step>;
}
