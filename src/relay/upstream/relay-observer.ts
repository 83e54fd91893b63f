/** Who is told what goes on between the relay and the bot service; never of a single chunk. */
export interface RelayObserver {
  /** The headers of a stream went down. Returns what is to be called when the stream is over. */
  streamStarted(): () => void;
  /** A heartbeat was written into a stream. */
  heartbeatSent(): void;
  /** The bot service has answered a request that carried this key. */
  upstreamAnswered(keyFingerprint: string, status: number): void;
  /** A request with this key got no answer: `reason` is the Problem, or why the message was stopped. */
  upstreamFailed(keyFingerprint: string, reason: unknown): void;
}

/** Nobody is told. */
export const UNOBSERVED: RelayObserver = {
  streamStarted: () => () => {},
  heartbeatSent: () => {},
  upstreamAnswered: () => {},
  upstreamFailed: () => {},
};
