import { baseOf } from '../transport/calls.ts';
import type { BotSettings } from './bot-calls.ts';

/** Longer than the bot service may take: it sends no heartbeats. In ms. */
const SILENCE_MS = 200_000;

const NEVER = '9999-12-31T23:59:59Z';
/** The session of every client with a key: nobody signs in. */
const SESSION = { user: { id: 'api-key', name: 'API key' }, idleExpiresAt: NEVER, absoluteExpiresAt: NEVER };

const REFUSED = {
  type: '/docs/problems.md#upstream_key_rejected',
  code: 'upstream_key_rejected',
  detail: 'The bot service has refused the API key.',
  retryable: false,
};

/**
 * The options of a client that talks to the bot service itself. Their `fetch` alone has the key, and adds it. It also
 * answers what only a relay can be asked: who is signed in.
 * @throws TypeError in a browser, without the service's address, and for a key that cannot be in a header
 */
export function directConnect({ apiKey = '', ...options }: BotSettings): BotSettings {
  // A worker of a browser has no document.
  if (globalThis.document ?? globalThis.location)
    throw new TypeError('In a browser, leave out apiKey, and use the relay: it adds the key.');
  // `Headers` would repeat the key in its error.
  if (!/^[!-~]+$/.test(apiKey)) throw new TypeError('apiKey must be printable ASCII without spaces.');
  if (!options.baseUrl) throw new TypeError('With apiKey, baseUrl must be the address of the bot service.');
  const ofSession = `${baseOf(options)}/auth/`;
  const own: typeof fetch = async (url, init = {}) => {
    if (`${url}`.startsWith(ofSession)) return Response.json(SESSION);
    const headers = new Headers(init.headers);
    headers.set('X-API-KEY', apiKey);
    // Another server must not get the key.
    const response = await (options.fetch ?? fetch)(url, { ...init, headers, redirect: 'error' });
    const { status } = response;
    if (status !== 401 && status !== 403) return response;
    await response.body?.cancel();
    return Response.json({ ...REFUSED, status }, { status });
  };
  return { ...options, silenceMs: options.silenceMs ?? SILENCE_MS, fetch: own };
}
