import { carryStream } from './carry-stream.ts';
import type { CarryOptions } from './stream-state.ts';

/** A live stream belongs to no message: there is nothing to resume, and no run whose end it must have. */
export type LiveOptions = Omit<CarryOptions, 'lastEventId' | 'healer' | 'endEvents' | 'endings'>;

/**
 * Carries a live stream in whole events, with heartbeats. If it ends early for any reason, the connection to the client
 * is cut: asking again costs nothing, and clients do so after a cut. Resolves when the answer has ended in any way.
 */
export async function carryLive(options: LiveOptions): Promise<void> {
  await carryStream({
    ...options,
    ...{ lastEventId: undefined, healer: undefined, endEvents: false, endings: 'cut' },
  });
}
