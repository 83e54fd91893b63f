/** Undefined outside of browsers. */
declare const XMLHttpRequest: { new (): globalThis.XMLHttpRequest } | undefined;

/**
 * A `fetch` that posts a body, and tells which part of it was sent, from 0 to 1. It uses XMLHttpRequest, since a browser's
 * `fetch` cannot tell it. Without XMLHttpRequest, or with a `fetch` of the application (`own`), only the end is told.
 */
export function postWithProgress(onProgress: (part: number) => void, own?: typeof fetch): typeof fetch {
  return async (url, init = {}) => {
    const hasProgress = own === undefined && typeof XMLHttpRequest === 'function';
    const response = await (hasProgress ? post(String(url), init, onProgress) : (own ?? fetch)(url, init));
    if (response.ok) onProgress(1);
    return response;
  };
}

async function post(
  url: string,
  { body, headers, signal }: RequestInit,
  onProgress: (part: number) => void,
): Promise<Response> {
  const request = new (XMLHttpRequest as { new (): globalThis.XMLHttpRequest })();
  await new Promise((resolve, reject) => {
    request.open('POST', url);
    request.withCredentials = true;
    for (const [name, value] of new Headers(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = resolve;
    request.onerror = request.onabort = () => reject(new TypeError('The upload has failed.'));
    signal?.addEventListener('abort', () => request.abort(), { once: true });
    request.send(body as FormData);
  });
  return responseOf(request);
}

/** @throws TypeError for a header that `Headers` does not take */
function responseOf(request: XMLHttpRequest): Response {
  const headers = new Headers();
  for (const line of request.getAllResponseHeaders().trim().split('\r\n')) {
    const end = line.indexOf(':');
    if (end > 0) headers.append(line.slice(0, end), line.slice(end + 1));
  }
  const { status } = request;
  return new Response(status === 204 ? null : request.response, { status, headers });
}
