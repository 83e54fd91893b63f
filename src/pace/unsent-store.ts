/**
 * The messages of each conversation that wait before they are sent, kept in this process's memory, or in Redis for all
 * instances. A conversation is a name without white space, a ticket a name that is used once.
 * @throws Problem `session_store_unavailable` from each method if the store is out of reach
 */
export interface UnsentStore {
  /** Enters a message under its ticket. */
  enter(conversation: string, ticket: string): Promise<void>;
  /** Takes the message out. Resolves with false if `stop` has named it, and with true if not: then it may be sent. */
  leave(conversation: string, ticket: string): Promise<boolean>;
  /** Takes out all messages of the conversation, which may not be sent any more; resolves with how many they were. */
  stop(conversation: string): Promise<number>;
  /** Calls `stopped` with the conversation of each `stop`, here and at all instances; some can be lost. Call it once. */
  listen(stopped: (conversation: string) => void): void;
}
