import { Problem } from '../errors.ts';
import type { Holders } from './holders.ts';
import type { TakePlace } from './places.ts';

/** The place of a message whose body is still to be read. */
export interface MessagePlace {
  /**
   * Call it before the message is sent.
   * @throws Problem `too_many_streams` if it has none for its stream
   */
  keep(): Promise<void>;
  /** Whether it is one for its stream. */
  isKept(): boolean;
  /** May be called again. */
  release(): void;
}

/** Takes a place for a message. @throws Problem as `TakePlace` */
export type TakeMessagePlace = (holders: Holders) => Promise<MessagePlace>;

/**
 * Takes a place with `takePlace`. A message that turns out to be one that runs already needs none: so if all are taken,
 * its body may be read with a place of `takeBodyPlace`, if that is given.
 */
export function messagePlaces(takePlace: TakePlace, takeBodyPlace?: TakePlace): TakeMessagePlace {
  return async function takeMessagePlace(holders) {
    let release = () => {};
    let isKept = true;
    try {
      release = await takePlace(holders);
    } catch (error) {
      if (!takeBodyPlace || !(error instanceof Problem) || error.code !== 'too_many_streams') throw error;
      isKept = false;
      release = await takeBodyPlace(holders).catch(() => {
        throw error;
      });
    }
    return {
      async keep() {
        if (isKept) return;
        const next = await takePlace(holders);
        release();
        release = next;
        isKept = true;
      },
      isKept: () => isKept,
      release: () => release(),
    };
  };
}
