import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import { type Answer, call } from '../clients/call.ts';
import { CANARY } from '../relay/secrets.ts';
import { Jar } from './identity-provider.ts';

export const FAKE_CLIENT = { id: 'bot-relay', secret: CANARY.secondKey };
export const BACKCHANNEL_EVENT = 'http://schemas.openid.net/event/backchannel-logout';

type PairKey = Awaited<ReturnType<typeof generateKeyPair>>['privateKey'];

/** A key pair, and the part that a provider publishes. */
export interface SigningKey {
  readonly privateKey: PairKey;
  readonly publicKey: PairKey;
  readonly alg: string;
  readonly kid: string;
  readonly jwk: JWK;
}

export async function signingKey(kid: string, alg = 'ES256'): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return { privateKey, publicKey, alg, kid, jwk: { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' } };
}

export type Handler = (req: IncomingMessage, res: ServerResponse) => void;

/** What the provider does; a test may change it. */
export interface Behaviour {
  /** Replaces parts of the metadata; an undefined part is left out. */
  metadata: Record<string, unknown>;
  /** The keys that it publishes. */
  published: readonly SigningKey[];
  /** The key with which it signs. */
  signer: SigningKey;
  /** Replaces claims of ID tokens; an undefined claim is left out. */
  claims: Record<string, unknown>;
  /** Makes the ID token from its claims. */
  idToken: (claims: JWTPayload) => Promise<string> | string;
  userinfo: Record<string, unknown>;
  /** Replaces its own answers, by path. */
  answers: Record<string, Handler>;
}

export interface FakeProvider extends Behaviour {
  readonly issuer: string;
  /** All requests so far. */
  readonly requests: { path: string; headers: IncomingMessage['headers']; form: URLSearchParams }[];
  /** How often `path` was requested. */
  asked(path: string): number;
  /** A token with these claims, signed with the current key. */
  sign(claims: JWTPayload, header?: Record<string, unknown>): Promise<string>;
  /** A valid logout token; these claims replace its own, and an undefined claim is left out. */
  logoutToken(claims: Record<string, unknown>): Promise<string>;
  close(): Promise<void>;
}

const PATHS = {
  metadata: '/.well-known/openid-configuration',
  keys: '/keys',
  token: '/token',
  userinfo: '/userinfo',
} as const;

export { PATHS };

export const seconds = (offset = 0) => Math.floor(Date.now() / 1000) + offset;
let tokens = 0;

/**
 * Starts an OpenID provider over HTTP on `port`, or on a free port, whose behaviour the test decides, also wrong
 * behaviour. A code is the nonce of its sign-in; see `signInWith`.
 */
export async function startFakeProvider(port = 0): Promise<FakeProvider> {
  const server = createServer();
  await once(server.listen(port, '127.0.0.1'), 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const signer = await signingKey('first');
  const fake: FakeProvider = {
    issuer,
    requests: [],
    metadata: {},
    published: [signer],
    signer,
    claims: {},
    idToken: (claims) => fake.sign(claims),
    userinfo: { sub: 'ada' },
    answers: {},
    asked: (path) => fake.requests.filter((request) => request.path === path).length,
    sign: (claims, header = {}) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: fake.signer.alg, kid: fake.signer.kid, ...header })
        .sign(fake.signer.privateKey),
    logoutToken: (claims) =>
      fake.sign(
        {
          iss: issuer,
          aud: FAKE_CLIENT.id,
          iat: seconds(),
          exp: seconds(120),
          jti: `logout-${++tokens}`,
          events: { [BACKCHANNEL_EVENT]: {} },
          ...claims,
        },
        { typ: 'logout+jwt' },
      ),
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  server.on('request', (req, res) => void answer(fake, req, res));
  return fake;
}

async function answer(fake: FakeProvider, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const path = req.url ?? '';
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  const form = new URLSearchParams(Buffer.concat(chunks).toString());
  fake.requests.push({ path, headers: req.headers, form });
  const other = fake.answers[path];
  if (other) return other(req, res);
  const body = await bodyOf(fake, path, form);
  res.writeHead(body ? 200 : 404, { 'Content-Type': 'application/json' }).end(JSON.stringify(body ?? {}));
}

async function bodyOf(fake: FakeProvider, path: string, form: URLSearchParams): Promise<unknown> {
  const { issuer, published, claims, userinfo } = fake;
  switch (path) {
    case PATHS.metadata:
      return {
        issuer,
        authorization_endpoint: `${issuer}/authorize`,
        token_endpoint: issuer + PATHS.token,
        jwks_uri: issuer + PATHS.keys,
        id_token_signing_alg_values_supported: ['RS256', 'PS256', 'ES256'],
        ...fake.metadata,
      };
    case PATHS.keys:
      return { keys: published.map(({ jwk }) => jwk) };
    case PATHS.token:
      return {
        access_token: 'an-access-token',
        token_type: 'Bearer',
        id_token: await fake.idToken({
          iss: issuer,
          aud: FAKE_CLIENT.id,
          sub: 'ada',
          name: 'Ada',
          nonce: form.get('code') ?? '',
          iat: seconds(),
          exp: seconds(300),
          ...claims,
        }),
      };
    case PATHS.userinfo:
      return userinfo;
  }
  return undefined;
}

/** The environment of a relay that signs in at the provider at `issuer`. */
export const signInAt = (issuer: string): Record<string, string> => ({
  AUTH_MODE: 'oidc',
  OIDC_ISSUER: issuer,
  OIDC_CLIENT_ID: FAKE_CLIENT.id,
  OIDC_CLIENT_SECRET: FAKE_CLIENT.secret,
});

/** Signs in at the relay on `port` with a fake provider; returns the answers and the browser's cookies. */
export async function signInWith(port: number): Promise<{ begun: Answer; ended: Answer; cookie: string }> {
  const jar = new Jar();
  const visit = async (path: string) => {
    const answer = await call(port, path, { headers: { Cookie: jar.header() } });
    const cookies = (answer.headers['set-cookie'] ?? []).map((cookie) => ['set-cookie', cookie] as const);
    jar.take(new Response(null, { headers: cookies as [string, string][] }));
    return answer;
  };
  const begun = await visit('/auth/login');
  if (begun.status !== 302) return { begun, ended: begun, cookie: jar.header() };
  const { searchParams } = new URL(begun.headers.location as string);
  const query = new URLSearchParams({
    state: searchParams.get('state') as string,
    code: searchParams.get('nonce') as string,
  });
  const ended = await visit(`/auth/callback?${query}`);
  return { begun, ended, cookie: jar.header() };
}
