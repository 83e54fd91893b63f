import { lookup as systemLookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { Agent, type Response as Answer, fetch as undiciFetch } from 'undici';
import { isForbidden } from '../../http/forbidden-addresses.ts';
import { ModelError } from './provider-error.ts';

/** `fetch` as the AI SDK calls it. */
export type Fetch = typeof fetch;

/** How much a provider may answer to one request, in bytes: an embedding of many texts is the largest. */
const MAX_ANSWER = 64 * 2 ** 20;

/** Looks names up by `resolve`, and refuses those of which any address is forbidden. */
function guarded(resolve: LookupFunction): LookupFunction {
  return (host, options, callback) =>
    resolve(host, { ...options, all: true }, (error, found) => {
      const addresses = typeof found === 'string' ? [{ address: found, family: isIP(found) }] : found;
      const [first] = addresses ?? [];
      if (error || !first) return callback(error ?? new ModelError('MODEL_HOST_UNKNOWN'), '');
      if (addresses.some(({ address }) => isForbidden(address)))
        return callback(new ModelError('MODEL_ENDPOINT_FORBIDDEN'), '');
      return options.all ? callback(null, addresses) : callback(null, first.address, first.family);
    });
}

/**
 * A `fetch` for the endpoints of models. A redirect is an error, since the headers with a key would go along; so is a
 * forbidden address, as a literal and after DNS; so is an answer beyond `MAX_ANSWER`. It throws `ModelError` for these,
 * which the AI SDK does not try again. It sends text only.
 */
export function endpointFetch(resolve: LookupFunction = systemLookup): Fetch {
  const dispatcher = new Agent({ connect: { lookup: guarded(resolve) } });
  return async (input, init = {}) => {
    const url = new URL(input instanceof Request ? input.url : input);
    if (isForbidden(url.hostname)) throw new ModelError('MODEL_ENDPOINT_FORBIDDEN');
    if (init.body && typeof init.body !== 'string') throw new TypeError('only text is sent to a model');
    try {
      const { status, headers, body } = await undiciFetch(url, {
        method: init.method ?? 'GET',
        headers: [...new Headers(init.headers)],
        body: init.body ?? null,
        signal: init.signal ?? null,
        redirect: 'error',
        dispatcher,
      });
      return new Response(bounded(body), { status, headers: [...headers] });
    } catch (error) {
      throw error instanceof TypeError ? causeOf(error) : error;
    }
  };
}

/** The one `fetch` for all endpoints. */
export const safeFetch = endpointFetch();

/** The cause of a failed fetch, if it is one of those above. */
function causeOf(error: TypeError): unknown {
  const { cause } = error;
  if (cause instanceof ModelError) return cause;
  const isRedirect = cause instanceof Error && cause.message === 'unexpected redirect';
  return isRedirect ? new ModelError('MODEL_ENDPOINT_REDIRECTS') : error;
}

/** The same bytes; more than `MAX_ANSWER` are an error. */
function bounded(body: Answer['body']): ReadableStream<Uint8Array> | null {
  if (!body) return null;
  const reader = body.getReader();
  let bytes = 0;
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      bytes += value.byteLength;
      if (bytes <= MAX_ANSWER) return controller.enqueue(value);
      await reader.cancel();
      throw new ModelError('MODEL_BAD_ANSWER');
    },
    cancel: (reason) => reader.cancel(reason),
  });
}
