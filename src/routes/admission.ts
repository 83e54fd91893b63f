import type { MessagePlace } from '../pace/message-places.ts';
import { judgedLater } from './judged-later.ts';

/** The place of a message that was asked for together with its session. Until both are there, it counts as kept. */
export interface PendingPlace extends MessagePlace {
  /** Resolves when the session may go on and the place is there. @throws what has refused one of them */
  readonly granted: Promise<void>;
  /** Whether neither a refusal nor the place is there yet. */
  isPending(): boolean;
}

/** The place that `taking` resolves with, if `session` lets the message go on. */
export function pendingPlace(session: Promise<unknown>, taking: Promise<MessagePlace>): PendingPlace {
  let place: MessagePlace | undefined;
  let isReleased = false;
  let isPending = true;
  // As `withPlace`, in one function.
  async function judge(): Promise<void> {
    judgedLater(taking);
    try {
      await session;
      place = await taking;
    } catch (error) {
      taking.then(giveBack, () => {});
      throw error;
    } finally {
      isPending = false;
    }
    if (isReleased) place.release();
  }
  const granted = judgedLater(judge());
  return {
    granted,
    isPending: () => isPending,
    keep: () => (isPending || !place ? granted.then(() => place?.keep()) : place.keep()),
    isKept: () => place?.isKept() ?? true,
    release() {
      isReleased = true;
      place?.release();
    },
  };
}

/** With what a message has failed: if its session or its place was refused, with that, and else with `error`. */
export function firstFailure({ granted }: PendingPlace, error: unknown): Promise<unknown> {
  return granted.then(
    () => error,
    (refusal) => refusal,
  );
}

function giveBack({ release }: MessagePlace): void {
  release();
}
