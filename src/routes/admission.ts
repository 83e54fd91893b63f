import type { MessagePlace } from '../pace/message-places.ts';
import { judgedLater, withPlace } from './judged-later.ts';

/** The place of a message that was asked for together with its session. Until both are there, it counts as kept. */
export interface PendingPlace extends MessagePlace {
  /** Resolves when the session may go on and the place is there. @throws what has refused one of them */
  readonly granted: Promise<void>;
  /** Whether neither a refusal nor the place is there yet. */
  isPending(): boolean;
  /** As of `MessagePlace`, after `granted`. */
  keep(): Promise<void>;
}

/** The place that `taking` resolves with, if `session` lets the message go on. */
export function pendingPlace(session: Promise<unknown>, taking: Promise<MessagePlace>): PendingPlace {
  let place: MessagePlace | undefined;
  let isReleased = false;
  let isPending = true;
  async function judge(): Promise<void> {
    try {
      [, place] = await withPlace(session, taking, ({ release }) => release());
    } finally {
      isPending = false;
    }
    if (isReleased) place.release();
  }
  const granted = judgedLater(judge());
  return {
    granted,
    isPending: () => isPending,
    async keep() {
      await granted;
      await place?.keep();
    },
    isKept: () => place?.isKept() ?? true,
    release() {
      isReleased = true;
      place?.release();
    },
  };
}

/** What `work` resolves with. If it fails, what was asked for before it refuses before it. */
export async function refusedAfter<T>({ granted }: PendingPlace, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    await granted;
    throw error;
  }
}
