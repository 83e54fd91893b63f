import { sleep } from '../clock/sleep.ts';
import { until } from '../clock/until.ts';
import { startBuilt } from './built-relay.ts';
import { total } from './metric-samples.ts';
import { type StartedRelay, startInProcess, type TestLimits } from './relay-in-process.ts';
import { CANARY, expectNoCanary, LONG_NAMED_USER, OTHER_USER, USER } from './secrets.ts';

export { CANARY, expectNoCanary, LONG_NAMED_USER, OTHER_USER, type TestLimits, USER };

export const BOT_PATH = '/generic/ns/acme/bot-provider/helper/message/sse';
export const MESSAGE = JSON.stringify({ customChannelId: 'c1', text: CANARY.text, action: 'NONE' });

export interface TestRelay extends Pick<StartedRelay, 'port' | 'parts' | 'reload'> {
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
  /** Closes everything; throws if a canary has shown in a log line, a metric or, in this process, an answer. */
  close(): Promise<void>;
}

/**
 * Starts a whole relay on a free port, in front of the bot service at `upstreamUrl`. It is in this process. With the
 * variable BUILT_RELAY (tests/prove/built-relay.proof.ts) it is the built one with Redis, which takes no `limits`.
 */
export async function startRelay(
  upstreamUrl: string | URL,
  environment: Record<string, string> = {},
  limits: TestLimits = {},
): Promise<TestRelay> {
  const whole = {
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
    // The port is a free one.
    METRICS_PORT: '9090',
    ...environment,
  };
  const isBuilt = Boolean(process.env.BUILT_RELAY);
  if (isBuilt && Object.keys(limits).length > 0) throw new Error('The built relay takes no limits.');
  const started = isBuilt ? await startBuilt(whole) : await startInProcess(whole, limits);
  const { port, printed, metricsText } = started;
  const parsed: Record<string, unknown>[] = [];
  /** How far the log is parsed. */
  let read = 0;
  const url = `http://127.0.0.1:${port}`;
  const base = url + (environment.BASE_PATH ?? '');
  async function metric(name: string, labels?: Record<string, string>): Promise<number> {
    const text = await metricsText(name);
    if (text === '') throw new Error('This relay has no metrics.');
    return total(text, name, labels);
  }
  const relay: TestRelay = {
    port,
    url,
    reload: started.reload,
    get parts() {
      return started.parts;
    },
    get logs() {
      const end = printed().lastIndexOf('\n') + 1;
      const lines = printed().slice(read, end).split('\n').slice(0, -1);
      parsed.push(...lines.map((line) => JSON.parse(line)));
      read = end;
      return [...parsed];
    },
    metricsText: () => metricsText(),
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
      await started.close();
      expectNoCanary(printed());
    },
  };
  return relay;
}
