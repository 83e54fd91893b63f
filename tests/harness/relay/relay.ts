import { usersOf } from '../../../src/authenticate/password/users.ts';
import type { SessionLimits } from '../../../src/authenticate/sessions/session.ts';
import { loadConfig } from '../../../src/config/config.ts';
import { createLogger } from '../../../src/logger.ts';
import { type Instance, startInstance } from '../../../src/process/instance.ts';
import type { RunLeases } from '../../../src/runs/run-store.ts';
import { sleep } from '../clock/sleep.ts';
import { until } from '../clock/until.ts';
import { cheapHash } from './cheap-hash.ts';
import { total } from './metric-samples.ts';
import { scanAnswers } from './scan-answers.ts';
import { CANARY, expectNoCanary, SECRETS } from './secrets.ts';

export { CANARY, expectNoCanary };

export const USER = { name: 'ada', password: CANARY.password };
export const OTHER_USER = { name: 'bob', password: CANARY.password };
/** Its name does not fit into a header. */
export const LONG_NAMED_USER = { name: `zoë ${'z'.repeat(130)}`, password: CANARY.password };
export const BOT_PATH = '/generic/ns/acme/bot-provider/helper/message/sse';
export const MESSAGE = JSON.stringify({ customChannelId: 'c1', text: CANARY.text, action: 'NONE' });

const passwordHash = cheapHash(CANARY.password);

const HASHES = new Map([USER, OTHER_USER, LONG_NAMED_USER].map(({ name }) => [name, passwordHash]));

/** The parts that tests need. */
type OpenPart = 'sessions' | 'redis' | 'budgets' | 'streams' | 'open' | 'held' | 'runStore' | 'lifecycle';

export interface TestRelay extends Pick<Instance['parts'], OpenPart>, Pick<Instance, 'reload'> {
  readonly port: number;
  readonly url: string;
  /** Every log line so far, parsed. */
  readonly logs: Record<string, unknown>[];
  /** The metrics as text. They are served on a free port; without METRICS_PORT there are none. */
  metricsText(): Promise<string>;
  /** How many messages are open, by the metrics. */
  openMessages(): Promise<number>;
  /** Resolves once so many messages are open. */
  untilOpen(count: number): Promise<void>;
  /** How many uses of the store of sessions have ended, by the metrics: of this operation, or of all. */
  sessionUses(operation?: 'get' | 'set' | 'touch' | 'destroy'): Promise<number>;
  /** The memory for the streams of runs in bytes, by the metrics. */
  runBytes(): Promise<number>;
  /** Signs a user in; returns the `Cookie` header to send. */
  signIn(user?: { name: string; password: string }): Promise<string>;
  /** Posts a message with `fetch` and the session's cookie; `init` can set more. */
  send(cookie: string, init?: RequestInit & { path?: string }): Promise<Response>;
  /** Resolves with the log line of the request that `match` accepts, as soon as it is written. */
  logLine(match: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>>;
  /** Closes everything; throws if a canary has shown in a log line or in an answer. */
  close(): Promise<void>;
}

/** Limits that no variable sets, or not so short. */
export interface TestLimits extends Partial<SessionLimits> {
  /** Long by default, so that a busy machine is not taken for a slow Redis. */
  readonly commandTimeoutMs?: number;
  readonly leases?: Partial<RunLeases>;
}

/**
 * Starts a whole relay in this process, on a free port, in front of the bot service at `upstreamUrl`. With Redis, it
 * waits until Redis answers, or for 5 s.
 */
export async function startRelay(
  upstreamUrl: string | URL,
  environment: Record<string, string> = {},
  { commandTimeoutMs = 20_000, leases = {}, ...sessionLimits }: TestLimits = {},
): Promise<TestRelay> {
  const loaded = loadConfig({
    PORT: '0',
    HOST: '127.0.0.1',
    PUBLIC_URL: 'http://app.example.com',
    UPSTREAM_BASE_URL: String(upstreamUrl),
    UPSTREAM_API_KEYS: CANARY.key,
    BOTS: 'acme/helper',
    SESSION_SECRETS: CANARY.sessionSecret,
    CHANNEL_SECRET: CANARY.channelSecret,
    MAX_CONNECTIONS: '10000',
    RATE_LIMIT: '1000',
    MAX_STREAMS_PER_USER: '2000',
    CLIENT_LIMIT_PER_ADDRESS: '1000000',
    CLIENT_LIMIT_PER_SESSION: '1000000',
    SHUTDOWN_GRACE_MS: '0',
    METRICS_PORT: '9090',
    ...environment,
  });
  const config = {
    ...loaded,
    session: { ...loaded.session, ...sessionLimits },
    redis: loaded.redis && { ...loaded.redis, commandTimeoutMs },
    ...(loaded.metricsPort !== undefined && { metricsPort: 0 }),
  };
  const printed: string[] = [];
  const parsed: Record<string, unknown>[] = [];
  const logger = createLogger('debug', { write: (line: string) => void printed.push(line) });
  let port = -1;
  const scan = scanAnswers(() => port, SECRETS);
  const instance = await startInstance({
    config,
    logger,
    users: usersOf(() => HASHES, passwordHash),
    pollEveryMs: 50,
    leases,
  });
  port = instance.port;
  const { redis } = instance.parts;
  await redis?.ready(5_000);
  const url = `http://127.0.0.1:${port}`;
  const base = url + config.basePath;
  /** One metric alone: a whole scrape asks Redis, which may be away. */
  async function metric(name: string, labels?: Record<string, string>): Promise<number> {
    const { metrics } = instance.parts;
    if (!metrics) throw new Error('This relay has no metrics.');
    return total(await metrics.registry.getSingleMetricAsString(name), name, labels);
  }
  const relay: TestRelay = {
    ...instance.parts,
    reload: instance.reload,
    port,
    url,
    get logs() {
      for (const line of printed.slice(parsed.length)) parsed.push(JSON.parse(line));
      return [...parsed];
    },
    metricsText: async () => instance.parts.metrics?.registry.metrics() ?? '',
    openMessages: () => metric('bot_relay_open_messages'),
    untilOpen: (count) => until(async () => (await relay.openMessages()) === count),
    sessionUses: (operation) => metric('bot_relay_session_operations_total', operation && { operation }),
    runBytes: () => metric('bot_relay_run_log_bytes'),
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
        await sleep(5);
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
