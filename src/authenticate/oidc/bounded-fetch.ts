/** How much of an answer is read, in bytes: metadata, keys and tokens are a few thousand. */
const MAX_BYTES = 1_048_576;

export type Fetch = typeof fetch;

/** `ask`, whose answers break off with the error `ANSWER_TOO_LARGE` where they pass 1 MiB, however they are encoded. */
export function boundedFetch(ask: Fetch): Fetch {
  return async function boundedFetch(input, init) {
    const response = await ask(input, init);
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
