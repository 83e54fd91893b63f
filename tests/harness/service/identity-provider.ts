import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';

export const CLIENT = { id: 'bot-relay', secret: 'canary-oidc-client-secret' };

// The library warns at its start that a real provider should do more. These texts are hidden; errors are not.
for (const level of ['info', 'warn'] as const) {
  const print = console[level].bind(console);
  console[level] = (...words: unknown[]) => {
    if (!/oidc-provider (NOTICE|WARNING): /.test(String(words[0]))) print(...words);
  };
}

export interface IdentityProviderServer {
  readonly issuer: string;
  readonly provider: Provider;
  /** The paths of all requests so far. */
  readonly asked: string[];
  /** Values that only the provider and the relay may see: codes, verifiers, tokens. */
  readonly secrets: Set<string>;
  /** While true, every connection is reset. */
  isDown: boolean;
  close(): Promise<void>;
}

/** The key of all providers in a test file, since making a key takes as long as the rest of the start. */
const signingKey = generateKeyPair('RS256', { extractable: true }).then(async ({ privateKey }) => ({
  ...(await exportJWK(privateKey)),
  kid: 'one',
  use: 'sig',
  alg: 'RS256',
}));

/** The claims of the user `name`. Everybody except `mallory` is a member of `chat-users`. */
const claimsOf = (name: string) => ({
  sub: name,
  name: `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`,
  groups: name === 'mallory' ? ['others'] : ['chat-users', 'others'],
});

/**
 * Starts a real OpenID provider on a free port for the relay whose public URL is `relayUrl`. Its form accepts every name
 * and password.
 */
export async function startIdentityProvider(relayUrl: string): Promise<IdentityProviderServer> {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
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
    jwks: { keys: [await signingKey] },
    cookies: { keys: ['canary-provider-cookie-key'] },
    claims: { profile: ['name'], groups: ['groups'], openid: ['sub'] },
    scopes: ['openid', 'profile', 'groups'],
    features: { backchannelLogout: { enabled: true } },
    // The provider's own dispatcher refuses loopback addresses, and Node's `fetch` cannot use it.
    fetch: (url, init) => fetch(url, Object.assign({}, init, { dispatcher: undefined })),
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => claimsOf(id) }),
  });
  const one: IdentityProviderServer = {
    issuer,
    provider,
    asked: [],
    secrets: secretsOf(provider),
    isDown: false,
    async close() {
      if (!server.listening) return;
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  const real = provider.callback();
  server.on('request', (req, res) => {
    const { pathname } = new URL(req.url ?? '', issuer);
    one.asked.push(pathname);
    if (one.isDown) req.socket.resetAndDestroy();
    else real(req, res);
  });
  return one;
}

/** Collects the values that nobody else may see. */
function secretsOf(provider: Provider): Set<string> {
  const secrets = new Set([CLIENT.secret]);
  provider.on('grant.success', ({ oidc, body }) => {
    const { code, code_verifier: verifier } = oidc.params ?? {};
    const { access_token: access, id_token: id } = body as Record<string, unknown>;
    for (const one of [code, verifier, access, id]) if (typeof one === 'string') secrets.add(one);
  });
  return secrets;
}

/** A cookie jar for one host. */
export class Jar {
  readonly #cookies = new Map<string, string>();
  readonly #strict = new Set<string>();

  /** The `Cookie` header; with `crossSite`, for a request that another site has started, without `Strict` cookies. */
  header({ crossSite = false } = {}): string {
    return [...this.#cookies]
      .filter(([name]) => !crossSite || !this.#strict.has(name))
      .map(([name, value]) => `${name}=${value}`)
      .join('; ');
  }

  names(): string[] {
    return [...this.#cookies.keys()];
  }

  value(name: string): string | undefined {
    return this.#cookies.get(name);
  }

  set(name: string, value: string): void {
    this.#cookies.set(name, value);
  }

  take(response: Response): void {
    this.takeAll(response.headers.getSetCookie());
  }

  /** Takes the `Set-Cookie` headers of an answer. */
  takeAll(lines: readonly string[] = []): void {
    for (const line of lines) {
      const [pair = '', ...attributes] = line.split(';');
      const equals = pair.indexOf('=');
      const [name, value] = [pair.slice(0, equals), pair.slice(equals + 1)];
      const isGone = value === '' || attributes.some((one) => /expires=Thu, 01 Jan 1970/i.test(one));
      if (isGone) this.#cookies.delete(name);
      else this.#cookies.set(name, value);
      if (attributes.some((one) => /samesite=strict/i.test(one))) this.#strict.add(name);
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
    if (action === undefined) throw new Error(`no form in: ${html}`);
    const hidden = html.matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g);
    const fields = new URLSearchParams(
      [...hidden].map(([, field = '', value = '']): [string, string] => [field, value]),
    );
    if (fields.get('prompt') === 'login') {
      fields.set('login', name);
      fields.set('password', 'any');
    }
    response = await visit(new URL(action, origin).href, jar, fields);
  }
}

/** Opens the provider's authorization URL and cancels at its form; returns the URL of the relay's callback. */
export async function cancelAtProvider(authorizationUrl: string): Promise<URL> {
  const { origin } = new URL(authorizationUrl);
  const jar = new Jar();
  let url = new URL(authorizationUrl);
  for (;;) {
    const response = await visit(url.href, jar);
    const location = response.headers.get('location');
    const next = location ?? /href="([^"]+\/abort)"/.exec(await response.text())?.[1];
    if (next === undefined) throw new Error('no way to cancel');
    url = new URL(next, origin);
    if (url.origin !== origin) return url;
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
