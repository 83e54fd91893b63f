import { setTimeout as sleep } from 'node:timers/promises';
import { createApp } from '../../src/app.ts';
import { providerOf } from '../../src/authenticate/oidc/identity-provider.ts';
import { usersOf } from '../../src/authenticate/password/users.ts';
import type { SessionLimits } from '../../src/authenticate/sessions/session-data.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { fingerprints } from '../../src/bots/bot-settings.ts';
import { type Config, loadConfig } from '../../src/config/config.ts';
import { createLogger, type Logger } from '../../src/logger.ts';
import type { EndpointBudgets } from '../../src/pace/budgets.ts';
import type { StreamLeases } from '../../src/pace/stream-leases.ts';
import { liveBots } from '../../src/process/live-bots.ts';
import { createLifecycle, startServer } from '../../src/process/server.ts';
import { openStores } from '../../src/process/stores.ts';
import { openMessages } from '../../src/relay/message/open-messages.ts';
import type { SignIn } from '../../src/routes/parts.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { keyReporter } from '../../src/watch/key-reports.ts';
import { createMetrics } from '../../src/watch/metrics.ts';
import { redisMetrics } from '../../src/watch/redis-metrics.ts';
import { reloadMetrics } from '../../src/watch/reload-metrics.ts';
import { countSessionOperations } from '../../src/watch/session-operations.ts';
import { cheapHash } from './cheap-hash.ts';
import { scanAnswers } from './scan-answers.ts';
import { CANARY, expectNoCanary, SECRETS } from './secrets.ts';

export { CANARY, expectNoCanary };

export const USER = { name: 'ada', password: CANARY.password };
export const OTHER_USER = { name: 'bob', password: CANARY.password };
export const BOT_PATH = '/generic/ns/acme/bot-provider/helper/message/sse';
export const MESSAGE = JSON.stringify({ customChannelId: 'c1', text: CANARY.text, action: 'NONE' });

const passwordHash = cheapHash(CANARY.password);

function signInOf(config: Config, logger: Logger): SignIn {
  const { authMode: mode } = config;
  if (mode === 'oidc') return { mode, provider: providerOf(config, logger) };
  if (mode === 'guest') return { mode };
  const users = new Map([USER, OTHER_USER].map(({ name }) => [name, passwordHash]));
  return { mode, users: usersOf(() => users, passwordHash) };
}

export interface TestRelay {
  readonly port: number;
  readonly url: string;
  /** Every log line so far, parsed. */
  readonly logs: Record<string, unknown>[];
  readonly sessions: SessionStore;
  readonly redis: Redis | undefined;
  readonly budgets: EndpointBudgets;
  readonly streams: StreamLeases;
  readonly open: ReturnType<typeof openMessages>;
  readonly bots: ReturnType<typeof liveBots>;
  readonly lifecycle: ReturnType<typeof createLifecycle>;
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
  const metrics = config.metricsPort === undefined ? undefined : createMetrics(fingerprints(config.upstream));
  const observe = metrics && { observe: redisMetrics(metrics) };
  const redis = config.redisUrl && openRedis({ url: config.redisUrl, logger, ...observe });
  for (let tries = 0; redis && tries < 50 && !(await redis.answers()); tries += 1) await sleep(10);
  const bots = liveBots({
    config,
    logger,
    lookEveryMs: 50,
    ...(redis && { observeKey: keyReporter(redis) }),
    ...(metrics && { observeReload: reloadMetrics(metrics) }),
  });
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const stores = openStores({ ...config, redis, logger, rate });
  const parts = {
    config,
    logger,
    metrics,
    upstreamUrl: config.upstream.baseUrl as URL,
    signIn: signInOf(config, logger),
    redis,
    ...stores,
    sessions: metrics ? countSessionOperations(stores.sessions, metrics) : stores.sessions,
    bots,
    open: openMessages(),
    lifecycle: createLifecycle(),
    onConnectionCut: metrics && (() => metrics.connectionsCut.inc()),
  };
  let port = -1;
  const scan = scanAnswers(() => port, SECRETS);
  const server = await startServer(createApp(parts), { ...config, ...parts });
  port = server.port;
  const url = `http://127.0.0.1:${server.port}`;
  const base = url + config.basePath;
  const relay: TestRelay = {
    ...parts,
    port: server.port,
    url,
    get logs() {
      return printed.map((line) => JSON.parse(line) as Record<string, unknown>);
    },
    metricsText: async () => (await metrics?.registry.metrics()) ?? '',
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
      await server.close();
      bots.close();
      parts.sessions.close();
      await parts.streams.close();
      redis?.close();
      expectNoCanary(printed.join('') + (await relay.metricsText()));
      scan.end();
    },
  };
  return relay;
}
