/** What a process of simulated instances does; it comes as JSON in the first argument. */
export interface Load {
  readonly redisUrl: string;
  readonly isCluster: boolean;
  /** How many instances the process stands for: each has a connection to Redis of its own. */
  readonly instances: number;
  readonly bots: number;
  readonly users: number;
  readonly messagesPerSecond: number;
  /** How many streams are open all the time, each of a user of its own; none if there are messages. */
  readonly streams: number;
  readonly durationMs: number;
}

/** What it has seen. */
export interface Seen {
  readonly messages: number;
  readonly granted: number;
  readonly failed: number;
  /** How long each reservation of a slot took, in ms. */
  readonly reservationsMs: readonly number[];
}
