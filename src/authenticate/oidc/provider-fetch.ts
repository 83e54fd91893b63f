import { setTimeout as sleep } from 'node:timers/promises';

/** The longest answer, in bytes. Metadata, keys and tokens have a few thousand. */
const MAX_BYTES = 1_048_576;

export type Fetch = typeof fetch;

/**
 * `unbounded` with a limit: a body that is over 1 MiB after decoding fails with the error code `ANSWER_TOO_LARGE`.
 */
export function boundedFetch(unbounded: Fetch): Fetch {
  return async function boundedFetch(input, init) {
    const response = await unbounded(input, init);
    if (response.body === null) return response;
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(byteLimit()), { status, statusText, headers });
  };
}

function byteLimit(): TransformStream<Uint8Array, Uint8Array> {
  let left = MAX_BYTES;
  return new TransformStream({
    transform(chunk, controller) {
      left -= chunk.byteLength;
      if (left >= 0) controller.enqueue(chunk);
      else
        controller.error(Object.assign(new Error('the answer is too large'), { code: 'ANSWER_TOO_LARGE' }));
    },
  });
}

/**
 * Wraps `work` so that it starts at most once in `everyMs`. Calls that come while it runs, or waits to start, share its
 * result. Rejects as the work does.
 */
export function throttled<T>(work: () => Promise<T>, everyMs: number): () => Promise<T> {
  let nextAt = Number.NEGATIVE_INFINITY;
  let running: Promise<T> | undefined;

  async function run(): Promise<T> {
    try {
      const waitMs = nextAt - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      nextAt = performance.now() + everyMs;
      return await work();
    } finally {
      running = undefined;
    }
  }

  return () => {
    running ??= run();
    return running;
  };
}
