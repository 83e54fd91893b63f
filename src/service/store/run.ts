import type { ServerResponse } from 'node:http';

/** The abort reason of a run that was suspended, or whose channel is gone. */
export const SUSPENDED = Symbol('suspended');
/** The abort reason of a run that is under way when the service is closed. */
export const SHUT_DOWN = Symbol('shut down');

/** What of a run after its last kept message is remembered for those that follow it later, in characters. */
const MAX_TAIL = 1_048_576;
/** A follower that has not read so many bytes is cut. */
const MAX_UNREAD_BYTES = 32 * 1024 * 1024;

/** A run of a bot. It sends its events to all that follow it. */
export interface Run {
  readonly id: string;
  /** Aborted, it ends the run. */
  readonly stop: AbortController;
  readonly isOver: boolean;
  send(text: string, isKept: boolean): void;
  /** Cuts the stream of the message that began the run. */
  breakOff(): void;
  end(): void;
  /** Writes what came after the last kept message to `res`, and all that comes; calls `onEnd` once, at the end. */
  follow(res: ServerResponse, onEnd: () => void): void;
}

/** A new run; `sender` is the answer to the message that began it, and its first follower. */
export function openRun(id: string, sender: ServerResponse): Run {
  const followers = new Map<ServerResponse, () => void>();
  let tail: string[] = [];
  let tailLength = 0;
  let isOver = false;
  const remember = (text: string, isKept: boolean) => {
    if (isKept) tail = [];
    else tail.push(text);
    tailLength = isKept ? 0 : tailLength + text.length;
    while (tailLength > MAX_TAIL) tailLength -= tail.shift()?.length ?? tailLength;
  };
  const write = (res: ServerResponse, text: string) => {
    if (res.destroyed) return;
    res.write(text);
    if (res.writableLength > MAX_UNREAD_BYTES) res.destroy();
  };
  return {
    id,
    stop: new AbortController(),
    get isOver() {
      return isOver;
    },
    send(text, isKept) {
      remember(text, isKept);
      for (const res of followers.keys()) write(res, text);
    },
    breakOff: () => void sender.destroy(),
    end() {
      isOver = true;
      for (const onEnd of followers.values()) onEnd();
      followers.clear();
    },
    follow(res, onEnd) {
      for (const text of tail) write(res, text);
      if (isOver) return onEnd();
      followers.set(res, onEnd);
      res.once('close', () => followers.delete(res));
    },
  };
}
