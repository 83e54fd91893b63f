import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair } from 'jose';
import Provider, { type Configuration } from 'oidc-provider';

export const CLIENT = { id: 'bot-relay', secret: 'canary-oidc-client-secret' };

export interface IdentityProviderServer {
  readonly issuer: string;
  readonly provider: Provider;
  close(): Promise<void>;
}

/** The claims of the user who signs in as `name`: everybody is a member of `chat-users` but `mallory`. */
const claimsOf = (name: string) => ({
  sub: name,
  name: `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`,
  groups: name === 'mallory' ? ['others'] : ['chat-users', 'others'],
});

/**
 * A real OpenID provider on a free port, whose sign-in form takes every name and password, for the relay whose public
 * URL is `relayUrl`. `options` go over its configuration.
 */
export async function startIdentityProvider(
  relayUrl: string,
  options: Configuration = {},
): Promise<IdentityProviderServer> {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT.id,
        client_secret: CLIENT.secret,
        redirect_uris: [`${relayUrl}/auth/callback`],
        post_logout_redirect_uris: [`${relayUrl}/`],
        backchannel_logout_uri: `${relayUrl}/auth/backchannel-logout`,
        backchannel_logout_session_required: true,
      },
    ],
    jwks: { keys: [{ ...(await exportJWK(privateKey)), kid: 'one', use: 'sig', alg: 'RS256' }] },
    cookies: { keys: ['canary-provider-cookie-key'] },
    claims: { profile: ['name'], groups: ['groups'], openid: ['sub'] },
    scopes: ['openid', 'profile', 'groups'],
    features: { backchannelLogout: { enabled: true } },
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => claimsOf(id) }),
    ...options,
  });
  server.on('request', provider.callback());
  return {
    issuer,
    provider,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A cookie jar by name, which is all that one host needs. */
export class Jar {
  readonly #cookies = new Map<string, string>();

  header(): string {
    return [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  take(response: Response): void {
    for (const line of response.headers.getSetCookie()) {
      const [pair = '', ...attributes] = line.split(';');
      const equals = pair.indexOf('=');
      const [name, value] = [pair.slice(0, equals), pair.slice(equals + 1)];
      const isGone = value === '' || attributes.some((one) => /expires=Thu, 01 Jan 1970/i.test(one));
      if (isGone) this.#cookies.delete(name);
      else this.#cookies.set(name, value);
    }
  }
}

/** Signs `name` in at the provider, beginning at its authorization URL; returns the URL of the relay's callback. */
export async function signInAtProvider(
  authorizationUrl: string,
  name: string,
  jar = new Jar(),
): Promise<URL> {
  const { origin } = new URL(authorizationUrl);
  let response = await visit(authorizationUrl, jar);
  for (;;) {
    const location = response.headers.get('location');
    if (location !== null) {
      const next = new URL(location, origin);
      if (next.origin !== origin) return next;
      response = await visit(next.href, jar);
      continue;
    }
    const html = await response.text();
    const action = /<form[^>]* action="([^"]+)"/.exec(html)?.[1];
    const prompt = /name="prompt" value="(\w+)"/.exec(html)?.[1];
    if (action === undefined || prompt === undefined) throw new Error(`no form in: ${html}`);
    const fields = prompt === 'login' ? { prompt, login: name, password: 'any' } : { prompt };
    response = await visit(new URL(action, origin).href, jar, new URLSearchParams(fields));
  }
}

async function visit(url: string, jar: Jar, form?: URLSearchParams): Promise<Response> {
  const response = await fetch(url, {
    redirect: 'manual',
    headers: { cookie: jar.header(), accept: 'text/html' },
    ...(form && { method: 'POST', body: form }),
  });
  jar.take(response);
  return response;
}
