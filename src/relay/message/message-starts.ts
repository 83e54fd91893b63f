import { hash } from 'node:crypto';

/** A hash of whose message it is, to which bot, and of its body. */
export type MessageName = string;

/** When the messages of the last time were sent, so that a resumption gets what is left of its message's deadline. */
export interface MessageStarts {
  /** The message is sent now and its deadline begins, also if the same message was sent before. */
  began(name: MessageName): void;
  /** How much is left of the message's deadline, in ms: 0 if it is over, all of it if the message is not known. */
  leftMs(name: MessageName): number;
  /** The message's stream ended well: it is forgotten. */
  ended(name: MessageName): void;
}

export interface MessageStartsOptions {
  /** How long a message may take, in ms. It is remembered for twice as long. */
  readonly maxExecutionMs: number;
  /** How many messages are remembered; beyond that, the oldest are forgotten. */
  readonly max?: number;
  /** A monotonic clock in ms. */
  readonly now?: () => number;
}

const MAX_MESSAGES = 10_000;
/** Larger bodies are not hashed, since that would block the process too long: their resumptions get a whole deadline. */
const MAX_BODY_BYTES = 65_536;

/** Remembers the starts of messages in this process. Each method takes the same time for any number of them. */
export function messageStarts(options: MessageStartsOptions): MessageStarts {
  const { maxExecutionMs, max = MAX_MESSAGES, now = () => performance.now() } = options;
  // In the order of their times: the first is the oldest.
  const starts = new Map<MessageName, number>();
  const isOld = (at: number) => now() - at >= 2 * maxExecutionMs;

  return {
    began(name) {
      starts.delete(name);
      starts.set(name, now());
      if (starts.size <= max) return;
      const [oldest = name] = starts.keys();
      starts.delete(oldest);
    },
    leftMs(name) {
      const at = starts.get(name);
      if (at === undefined || isOld(at)) return maxExecutionMs;
      return Math.max(0, maxExecutionMs - (now() - at));
    },
    ended(name) {
      starts.delete(name);
    },
  };
}

/**
 * The name of a message of `userId` to `bot`, which is `namespace/bot`, with this body byte for byte. Undefined if the
 * body has more than 64 KiB.
 */
export function nameOfMessage(userId: string, bot: string, body: Buffer): MessageName | undefined {
  if (body.length > MAX_BODY_BYTES) return undefined;
  const prefix = Buffer.from(JSON.stringify([userId, bot]));
  return hash('sha256', Buffer.concat([prefix, body]), 'base64url');
}
