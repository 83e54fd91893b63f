/** The items, until `signal` aborts: then it throws the reason, also while the next item is awaited. */
export async function* untilAborted<Item>(
  items: AsyncIterable<Item>,
  signal: AbortSignal,
): AsyncGenerator<Item> {
  const iterator = items[Symbol.asyncIterator]();
  try {
    while (true) {
      const { done, value } = await raced(iterator.next(), signal);
      if (done) return;
      yield value;
    }
  } finally {
    // Who does not heed the signal may never come to an end.
    void iterator.return?.().catch(() => {});
  }
}

function raced<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
