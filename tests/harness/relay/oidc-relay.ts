import type { OutgoingHttpHeaders } from 'node:http';
import type { SessionLimits } from '../../../src/authenticate/sessions/session.ts';
import { type Answer, call } from '../clients/call.ts';
import { CLIENT, Jar, signInAtProvider, startIdentityProvider } from '../service/identity-provider.ts';
import { startRelay, type TestRelay } from './relay.ts';

/** What a browser sends with a navigation. */
export const NAVIGATION = { 'Sec-Fetch-Mode': 'navigate', Accept: 'text/html,application/xhtml+xml' };
const PUBLIC_URL = 'http://app.example.com';

export interface OidcOptions {
  /** Added to the relay's environment; a list has one for each instance. */
  readonly environment?: Record<string, string> | Record<string, string>[];
  readonly limits?: Partial<SessionLimits>;
}

export type Oidc = Awaited<ReturnType<typeof startOidc>>;

/** Relays whose users sign in at a real provider. */
export async function startOidc({ environment = {}, limits }: OidcOptions = {}) {
  const environments = [environment].flat();
  const { PUBLIC_URL: publicUrl = PUBLIC_URL, BASE_PATH = '' } = environments[0] ?? {};
  const provider = await startIdentityProvider(publicUrl + BASE_PATH);
  const relays: TestRelay[] = [];
  for (const one of environments)
    relays.push(
      await startRelay(
        'http://127.0.0.1:9',
        {
          AUTH_MODE: 'oidc',
          OIDC_ISSUER: provider.issuer,
          OIDC_CLIENT_ID: CLIENT.id,
          OIDC_CLIENT_SECRET: CLIENT.secret,
          ...one,
        },
        limits,
      ),
    );
  /** The path of the routes for signing in. */
  const auth = `${BASE_PATH}/auth`;
  return {
    provider,
    relay: relays[0] as TestRelay,
    relays,
    /** A new browser, at the first instance. */
    browser: () => new Browser(relays[0] as TestRelay, { auth, secrets: provider.secrets }),
    /** Closes everything; throws if a secret of a sign-in has shown in a log or a metric. */
    async close() {
      const printed = relays.map(({ logs }) => JSON.stringify(logs));
      for (const relay of relays) printed.push(await relay.metricsText());
      for (const relay of relays) await relay.close();
      await provider.close();
      const shown = [...provider.secrets].find((one) => printed.some((text) => text.includes(one)));
      if (shown !== undefined) throw new Error(`has shown in a log or a metric: ${shown}`);
    },
  };
}

/** The query and headers of a step of a sign-in. */
interface Step {
  readonly query?: string;
  readonly headers?: OutgoingHttpHeaders;
}

/** A browser with cookies. It sends no `Strict` cookies when it comes from the provider. */
export class Browser {
  readonly jar = new Jar();
  /** Its cookies at the provider. */
  readonly providerJar = new Jar();
  /** The relay that the load balancer has chosen. */
  relay: TestRelay;
  readonly #auth: string;
  readonly #secrets: Set<string>;

  constructor(relay: TestRelay, { auth, secrets }: { auth: string; secrets: Set<string> }) {
    this.relay = relay;
    this.#auth = auth;
    this.#secrets = secrets;
  }

  /** Requests a path, as a page of the relay does. */
  async get(path: string, headers: OutgoingHttpHeaders = {}): Promise<Answer> {
    return this.#ask(path, { Cookie: this.jar.header(), ...headers });
  }

  /** `GET /auth/login`. */
  login({ query = '', headers }: Step = {}): Promise<Answer> {
    return this.get(`${this.#auth}/login${query}`, headers);
  }

  /** Begins a sign-in; returns the authorization URL of the provider. */
  async begin(step: Step = {}): Promise<URL> {
    const { status, headers, body } = await this.login(step);
    if (status !== 302) throw new Error(`the sign-in began with ${status}: ${body}`);
    const url = new URL(headers.location as string);
    for (const name of ['state', 'nonce']) this.#secrets.add(url.searchParams.get(name) as string);
    return url;
  }

  /** Signs in at the provider; returns the URL of the callback. */
  atProvider(url: URL, name = 'ada'): Promise<URL> {
    return signInAtProvider(url.href, name, this.providerJar);
  }

  /** Opens the callback, coming from the provider. */
  async comeBack({ pathname, search }: URL, headers: OutgoingHttpHeaders = {}): Promise<Answer> {
    const code = new URLSearchParams(search).get('code');
    // Tests invent short codes, which other texts contain by chance.
    if (code && code.length > 16) this.#secrets.add(code);
    return this.#ask(pathname + search, { Cookie: this.jar.header({ crossSite: true }), ...headers });
  }

  /** A whole sign-in. */
  async signIn(name = 'ada', step: Step = {}): Promise<Answer> {
    return this.comeBack(await this.atProvider(await this.begin(step), name));
  }

  /** Requests `/auth/session`. */
  session(): Promise<Answer> {
    return this.get(`${this.#auth}/session`);
  }

  /** The names of the cookies of sign-ins that are not finished. */
  flows(): string[] {
    return this.jar.names().filter((name) => name.includes('bot_relay_sign_in_'));
  }

  /** The id of its session, from its cookie. */
  sessionId(): string | undefined {
    const name = this.jar.names().find((one) => one.endsWith('bot_relay_session'));
    return name && this.jar.value(name)?.split('.')[0];
  }

  async #ask(path: string, headers: OutgoingHttpHeaders): Promise<Answer> {
    const answer = await call(this.relay.port, path, { headers });
    this.jar.takeAll(answer.headers['set-cookie']);
    for (const name of this.flows()) this.#secrets.add(this.jar.value(name) as string);
    return answer;
  }
}
