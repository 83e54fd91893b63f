import { setTimeout as sleep } from 'node:timers/promises';
import { usersOf } from '../../src/authenticate/password/users.ts';
import type { SessionLimits } from '../../src/authenticate/sessions/session.ts';
import { loadConfig } from '../../src/config/config.ts';
import { createLogger } from '../../src/logger.ts';
import { type Instance, startInstance } from '../../src/process/instance.ts';
import { cheapHash } from './cheap-hash.ts';
import { scanAnswers } from './scan-answers.ts';
import { CANARY, expectNoCanary, SECRETS } from './secrets.ts';

export { CANARY, expectNoCanary };

export const USER = { name: 'ada', password: CANARY.password };
export const OTHER_USER = { name: 'bob', password: CANARY.password };
export const BOT_PATH = '/generic/ns/acme/bot-provider/helper/message/sse';
export const MESSAGE = JSON.stringify({ customChannelId: 'c1', text: CANARY.text, action: 'NONE' });

const passwordHash = cheapHash(CANARY.password);

const HASHES = new Map([USER, OTHER_USER].map(({ name }) => [name, passwordHash]));

/** The parts that tests look into. */
type OpenPart = 'sessions' | 'redis' | 'budgets' | 'streams' | 'open' | 'bots' | 'lifecycle';

export interface TestRelay extends Pick<Instance['parts'], OpenPart> {
  readonly port: number;
  readonly url: string;
  /** Every log line so far, parsed. */
  readonly logs: Record<string, unknown>[];
  /** What a scrape says; METRICS_PORT turns the metrics on, and nothing listens there. */
  metricsText(): Promise<string>;
  /** Signs a user in; returns the `Cookie` header to send. */
  signIn(user?: { name: string; password: string }): Promise<string>;
  /** Posts a message with `fetch`, with the session's cookie and whatever else `init` says. */
  send(cookie: string, init?: RequestInit & { path?: string }): Promise<Response>;
  /** Resolves with the log line of the request that `match` accepts, as soon as it is written. */
  logLine(match: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>>;
  /** Closes everything; throws if a canary has shown in a log line or in an answer. */
  close(): Promise<void>;
}

/**
 * A whole relay in this process, on a free port, in front of the bot service at `upstreamUrl`. `sessionLimits` may
 * be shorter than any that the environment can ask for. With Redis, it waits until Redis answers, but not for ever.
 */
export async function startRelay(
  upstreamUrl: string | URL,
  environment: Record<string, string> = {},
  sessionLimits: Partial<SessionLimits> = {},
): Promise<TestRelay> {
  const loaded = loadConfig({
    PORT: '0',
    HOST: '127.0.0.1',
    PUBLIC_URL: 'http://app.example.com',
    UPSTREAM_BASE_URL: String(upstreamUrl),
    UPSTREAM_API_KEYS: CANARY.key,
    BOTS: 'acme/helper',
    SESSION_SECRETS: CANARY.sessionSecret,
    RATE_LIMIT: '1000',
    MAX_STREAMS_PER_USER: '2000',
    CLIENT_LIMIT_PER_ADDRESS: '1000000',
    CLIENT_LIMIT_PER_SESSION: '1000000',
    SHUTDOWN_GRACE_MS: '0',
    ...environment,
  });
  const config = { ...loaded, session: { ...loaded.session, ...sessionLimits } };
  const printed: string[] = [];
  const logger = createLogger('debug', { write: (line: string) => void printed.push(line) });
  let port = -1;
  const scan = scanAnswers(() => port, SECRETS);
  const instance = await startInstance({
    config,
    logger,
    users: usersOf(() => HASHES, passwordHash),
    servesMetrics: false,
    lookEveryMs: 50,
  });
  port = instance.port;
  const { redis } = instance.parts;
  for (let tries = 0; redis && tries < 50 && !(await redis.answers()); tries += 1) await sleep(10);
  const url = `http://127.0.0.1:${port}`;
  const base = url + config.basePath;
  const relay: TestRelay = {
    ...instance.parts,
    port,
    url,
    get logs() {
      return printed.map((line) => JSON.parse(line) as Record<string, unknown>);
    },
    metricsText: instance.metricsText,
    async signIn({ name, password } = USER) {
      const response = await fetch(`${base}/auth/login`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ username: name, password }),
      });
      if (response.status !== 200) throw new Error(`sign-in answered ${response.status}`);
      return response.headers
        .getSetCookie()
        .map((cookie) => cookie.split(';', 1)[0])
        .join('; ');
    },
    send(cookie, { path = BOT_PATH, headers, ...init } = {}) {
      return fetch(base + path, {
        method: 'POST',
        body: MESSAGE,
        ...init,
        headers: {
          'Content-Type': 'application/json',
          Cookie: cookie,
          ...(headers as Record<string, string>),
        },
      });
    },
    async logLine(match) {
      for (;;) {
        const line = relay.logs.find(match);
        if (line) return line;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
    async close() {
      await instance.close();
      expectNoCanary(printed.join('') + (await relay.metricsText()));
      scan.end();
    },
  };
  return relay;
}
