import { type Browser, openBrowser } from './browser.ts';
import { cheapHash } from './cheap-hash.ts';
import { freePort } from './free-port.ts';
import { type Nginx, startNginx, stopNginx } from './nginx.ts';
import { freshFolder, type RelayProcess, startProcess, stopProcesses } from './process.ts';
import { startRedis, stopRedis } from './redis-server.ts';
import { CANARY, USER } from './relay.ts';

/** Which of the two relays. */
export type Index = 0 | 1;

/** What `docker-compose.yml` runs, as processes of this machine. */
export interface Topology {
  readonly nginx: Nginx;
  /** All the relays that were ever started; the last one of each index is the one that runs. */
  readonly started: { readonly index: Index; readonly relay: RelayProcess }[];
  running(index: Index): RelayProcess;
  /** Tells a relay to stop, waits until it has, and starts another one in its place. */
  restart(index: Index): Promise<void>;
  /** A connection to nginx on which a user has signed in. */
  signIn(): Promise<Browser>;
}

const browsers: Browser[] = [];

/** Starts nginx, two relays, Redis and the demo's bot service, with their secrets in files. */
export async function startTopology(environment: Readonly<Record<string, string>>): Promise<Topology> {
  const redis = await startRedis();
  const users = { users: [{ name: USER.name, hash: await cheapHash(USER.password) }] };
  const folder = freshFolder({
    bot_api_keys: CANARY.key,
    session_secrets: CANARY.sessionSecret,
    redis_url: redis.url,
    'users.json': JSON.stringify(users),
  });
  const bot = startProcess({
    folder,
    args: ['demo-bot', '--keys-file', 'bot_api_keys', '--port', '0', '--rate-limit', '10000'],
  });
  const botPort = await bot.listening();
  const ports = [await freePort(), await freePort()] as const;
  const nginx = await startNginx(ports);
  const started: Topology['started'] = [];
  async function start(index: Index) {
    const relay = startProcess({
      folder,
      environment: {
        NODE_ENV: 'production',
        HOST: '127.0.0.1',
        PORT: String(ports[index]),
        PUBLIC_URL: nginx.origin,
        TRUST_PROXY: '1',
        UPSTREAM_BASE_URL: `http://127.0.0.1:${botPort}`,
        UPSTREAM_API_KEYS_FILE: 'bot_api_keys',
        BOTS: 'demo/*',
        SESSION_SECRETS_FILE: 'session_secrets',
        REDIS_URL_FILE: 'redis_url',
        ...environment,
      },
    });
    started.push({ index, relay });
    await relay.listening();
    await relay.waitFor(/"msg":"redis ready"/);
  }
  await Promise.all([start(0), start(1)]);
  const running = (index: Index) => started.findLast((one) => one.index === index)?.relay as RelayProcess;
  return {
    nginx,
    started,
    running,
    async restart(index) {
      running(index).signal('SIGTERM');
      await running(index).exited;
      await start(index);
    },
    async signIn() {
      const browser = openBrowser(nginx.origin, nginx.certificate);
      browsers.push(browser);
      const { status } = await browser.send('/auth/login', {
        body: JSON.stringify({ username: USER.name, password: USER.password }),
      });
      if (status !== 200) throw new Error(`sign-in answered ${status}`);
      return browser;
    },
  };
}

/** Ends all that was started, and scans what the processes printed; for `afterEach`. */
export async function stopTopology(): Promise<void> {
  for (const browser of browsers.splice(0)) browser.close();
  await stopNginx();
  stopRedis();
  await stopProcesses();
}
