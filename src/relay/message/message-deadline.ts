import type { IncomingHttpHeaders } from 'node:http';
import { asMaybeStarted } from '../../errors.ts';
import { TOO_LONG } from './deadlines.ts';
import type { MessageName, MessageStarts } from './message-starts.ts';

export interface MessageDeadlineOptions {
  readonly starts: MessageStarts;
  /** Undefined if the message is not remembered. */
  readonly name: MessageName | undefined;
  /** Whether the client resumes an answer that it has seen in part. */
  readonly isResumption: boolean;
  /** How long a message may take, in ms. */
  readonly maxExecutionMs: number;
}

/** The deadline of a message, which goes on when its client resumes it. */
export interface MessageDeadline {
  /** @throws Problem `deadline_exceeded` if the message had all its time before, so that it may have run */
  check(): void;
  /** The message is sent now. Returns how long it may take, in ms. */
  begin(): number;
  /** The answer is complete. */
  ended(): void;
}

/** Makes the deadline of one message. A resumption has what is left of its message's time. */
export function messageDeadline(options: MessageDeadlineOptions): MessageDeadline {
  const { starts, name, isResumption, maxExecutionMs } = options;
  const leftMs = () => (isResumption && name ? starts.leftMs(name) : maxExecutionMs);
  return {
    check() {
      if (leftMs() <= 0) throw asMaybeStarted(TOO_LONG);
    },
    begin() {
      const left = leftMs();
      // A resumption of a message that is not known begins like a new one.
      if (name && left === maxExecutionMs) starts.began(name);
      return left;
    },
    ended() {
      if (name) starts.ended(name);
    },
  };
}

/** The client's `Last-Event-ID`; undefined if it is empty, which means the same (WHATWG HTML §9.2.3). */
export function lastEventIdOf(headers: IncomingHttpHeaders): string | undefined {
  const id = headers['last-event-id'];
  return typeof id === 'string' && id !== '' ? id : undefined;
}
