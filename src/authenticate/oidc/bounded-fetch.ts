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
