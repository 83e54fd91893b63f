/**
 * What is asked now and judged later: a failure counts when the promise is awaited, and is forgotten if it never is.
 * Commands that are sent to Redis in one tick of the event loop share one round trip.
 */
export function judgedLater<T>(answer: Promise<T>): Promise<T> {
  answer.catch(forget);
  return answer;
}

const forget = () => {};

/**
 * Judges two answers that were asked together: whether the session may go on, and a place. If the session may not, the
 * place is given back as soon as it is there.
 */
export async function withPlace<Session, Place>(
  session: Promise<Session>,
  place: Promise<Place>,
  giveBack: (place: Place) => void,
): Promise<readonly [Session, Place]> {
  judgedLater(place);
  try {
    return [await session, await place];
  } catch (error) {
    place.then(giveBack, () => {});
    throw error;
  }
}
