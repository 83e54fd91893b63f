import { Problem } from '../errors.ts';
import type { Holders } from './holders.ts';
import type { TakePlace } from './places.ts';

/** The place of a message whose body is still to be read. */
export interface MessagePlace {
  /**
   * Call it before the message is sent, and wait for what it returns: undefined only if there is nothing to wait for.
   * `isKept` does not say so: a place that is pending (`src/routes/admission.ts`) counts as kept until it is there.
   * @throws Problem `too_many_streams` if it has none for its stream
   */
  keep(): Promise<void> | undefined;
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
  return function takeMessagePlace(holders) {
    const taken = takePlace(holders).then(streamPlace);
    if (!takeBodyPlace) return taken;
    return taken.catch(async (error) => {
      if (!(error instanceof Problem) || error.code !== 'too_many_streams') throw error;
      const release = await takeBodyPlace(holders).catch(() => {
        throw error;
      });
      return bodyPlace(release, () => takePlace(holders));
    });
  };
}

const isKept = () => true;
const keep = () => undefined;

function streamPlace(release: () => void): MessagePlace {
  return { keep, isKept, release };
}

/** The place of a message that may only be read, until it `takeStream`s one for its stream. */
function bodyPlace(releaseBody: () => void, takeStream: () => ReturnType<TakePlace>): MessagePlace {
  let release = releaseBody;
  let isKept = false;
  async function takeStreamPlace(): Promise<void> {
    const next = await takeStream();
    release();
    release = next;
    isKept = true;
  }
  return {
    keep: () => (isKept ? undefined : takeStreamPlace()),
    isKept: () => isKept,
    release: () => release(),
  };
}
