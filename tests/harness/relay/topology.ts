import { type Browser, openBrowser } from '../browser/browser.ts';
import { until } from '../clock/until.ts';
import { startRedis, stopRedis } from '../redis/redis-server.ts';
import { cheapHash } from './cheap-hash.ts';
import { type LoadBalancer, stopLoadBalancers } from './deployed-load-balancers.ts';
import { freePort } from './free-port.ts';
import { startNginx, stopNginx } from './nginx.ts';
import { freshFolder, type RelayProcess, startProcess, stopProcesses } from './process.ts';
import { CANARY, USER } from './relay.ts';

/** The number of a relay. */
export type Index = 0 | 1;

/** The services of `docker-compose.yml` as processes of this machine. */
export interface Topology {
  /** All relays that were started; the last one of each index is running. */
  readonly started: { readonly index: Index; readonly relay: RelayProcess }[];
  running(index: Index): RelayProcess;
  /** Stops a relay and starts another one in its place. */
  restart(index: Index): Promise<void>;
  /** A browser that has signed in through the load balancer. */
  signIn(): Promise<Browser>;
}

const browsers: Browser[] = [];

export interface TopologyOptions {
  /** Starts the load balancer in front of the relays at these ports; nginx if not given. */
  readonly startLoadBalancer?: (
    ports: readonly [number, number],
  ) => Promise<Pick<LoadBalancer, 'origin' | 'certificate'>>;
  /** The bot service; the demo's if not given. */
  readonly upstreamUrl?: string;
}

/** Starts a load balancer, two relays, Redis and a bot service, with their secrets in files. */
export async function startTopology(
  environment: Readonly<Record<string, string>>,
  { startLoadBalancer = startNginx, upstreamUrl }: TopologyOptions = {},
): Promise<Topology> {
  const redis = await startRedis();
  const users = { users: [{ name: USER.name, hash: await cheapHash(USER.password) }] };
  const folder = freshFolder({
    bot_api_keys: CANARY.key,
    session_secrets: CANARY.sessionSecret,
    channel_secret: CANARY.channelSecret,
    redis_url: redis.url,
    'users.json': JSON.stringify(users),
  });
  const botUrl = upstreamUrl ?? (await startDemoBot(folder));
  const ports = [await freePort(), await freePort()] as const;
  const front = await startLoadBalancer(ports);
  const started: Topology['started'] = [];
  async function start(index: Index) {
    const relay = startProcess({
      folder,
      environment: {
        NODE_ENV: 'production',
        HOST: '127.0.0.1',
        PORT: String(ports[index]),
        PUBLIC_URL: front.origin,
        TRUST_PROXY: '1',
        UPSTREAM_BASE_URL: botUrl,
        UPSTREAM_API_KEYS_FILE: 'bot_api_keys',
        BOTS: 'demo/*',
        SESSION_SECRETS_FILE: 'session_secrets',
        CHANNEL_SECRET_FILE: 'channel_secret',
        REDIS_URL_FILE: 'redis_url',
        ...environment,
      },
    });
    started.push({ index, relay });
    await relay.listening();
    await relay.waitFor(/"msg":"redis ready"/);
  }
  await Promise.all([start(0), start(1)]);
  const open = () => {
    const browser = openBrowser(front.origin, front.certificate);
    browsers.push(browser);
    return browser;
  };
  // A load balancer needs a moment until it has found the first relay.
  const probe = open();
  await until(async () => (await probe.send('/readyz')).status === 200, 50);
  const running = (index: Index) => started.findLast((one) => one.index === index)?.relay as RelayProcess;
  return {
    started,
    running,
    async restart(index) {
      running(index).signal('SIGTERM');
      await running(index).exited;
      await start(index);
    },
    async signIn() {
      const browser = open();
      const { status } = await browser.send('/auth/login', {
        body: JSON.stringify({ username: USER.name, password: USER.password }),
      });
      if (status !== 200) throw new Error(`sign-in answered ${status}`);
      return browser;
    },
  };
}

async function startDemoBot(folder: string): Promise<string> {
  const args = ['service', '--keys-file', 'bot_api_keys', '--rate-limit', '10000'];
  const environment = { SERVICE_PORT: '0', SERVICE_CONSOLE_PORT: '0' };
  return `http://127.0.0.1:${await startProcess({ folder, args, environment }).listening()}`;
}

/** Stops everything and scans the output of the processes for secrets; for `afterEach`. */
export async function stopTopology(): Promise<void> {
  for (const browser of browsers.splice(0)) browser.close();
  await stopNginx();
  await stopLoadBalancers();
  stopRedis();
  await stopProcesses();
}
