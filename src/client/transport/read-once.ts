/** The same events for one loop. A second one throws, so that it does not look like an answer without events. */
export function readOnce<T>(events: AsyncIterator<T>): AsyncIterable<T> {
  let isRead = false;
  return {
    [Symbol.asyncIterator]() {
      if (isRead) throw new Error('An answer can be read once.');
      isRead = true;
      return events;
    },
  };
}
