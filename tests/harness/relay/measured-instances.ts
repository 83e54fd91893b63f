import { REMOVED, SESSION_PREFIX, USER_PREFIX } from '../../../src/authenticate/sessions/session-script.ts';
import { call } from '../clients/call.ts';
import { until } from '../clock/until.ts';
import type { RedisServer } from '../redis/redis.ts';
import { cheapHash } from './cheap-hash.ts';
import { freePort } from './free-port.ts';
import { samplesOf } from './metric-samples.ts';
import { freshFolder, inFrontOf, startProcess, untilReady } from './process.ts';
import { CANARY } from './secrets.ts';

export interface Memory {
  /** How many objects of these classes are in use. Some timers do not keep the process. */
  readonly objects: Readonly<Record<'Timeout' | 'AbortController' | 'KeyObject', number>>;
  /** What is in use of the heap and of buffers, after a collection, without code, in bytes. */
  readonly bytes: number;
}

/** On SIGUSR2, prints one line with what the process has in memory. */
const MEASURES = `
  import { writeSync } from 'node:fs';
  import { createSecretKey } from 'node:crypto';
  import { getHeapSpaceStatistics, queryObjects } from 'node:v8';
  const timer = setTimeout(() => {}, 0);
  clearTimeout(timer);
  const KeyObject = createSecretKey(Buffer.alloc(1)).constructor;
  const classes = { Timeout: timer.constructor, AbortController, KeyObject };
  const isOfCode = (name) => /code|trusted|read_only/.test(name);
  process.on('SIGUSR2', () => {
    const objects = {};
    for (const name in classes) objects[name] = queryObjects(classes[name], { format: 'count' });
    globalThis.gc();
    let bytes = process.memoryUsage().external;
    for (const { space_name, space_used_size } of getHeapSpaceStatistics()) {
      if (!isOfCode(space_name)) bytes += space_used_size;
    }
    writeSync(2, 'memory ' + JSON.stringify({ objects, bytes }) + '\\n');
  });`;

const GAUGES = /^bot_relay_(open_streams|open_messages|open_live_streams|run_log_bytes)$/;
const RESOURCES = /^(TCPServerWrap|TCPSocketWrap|Timeout)$/;

/** An instance in a process of its own, which tells what it has open. */
export type MeasuredInstance = Awaited<ReturnType<typeof startMeasured>>;

/** Starts an instance with these users, who all have the password of the tests. */
export async function startMeasured(
  upstreamUrl: string,
  users: readonly string[],
  environment: Readonly<Record<string, string>>,
) {
  const METRICS_PORT = String(await freePort());
  const hash = cheapHash(CANARY.password);
  const relay = startProcess({
    folder: freshFolder({ 'users.json': JSON.stringify({ users: users.map((name) => ({ name, hash })) }) }),
    nodeArgs: ['--expose-gc', '--import', `data:text/javascript,${encodeURIComponent(MEASURES)}`],
    environment: { ...inFrontOf(upstreamUrl), METRICS_PORT, ...environment },
  });
  const port = await relay.listening();
  await untilReady(port);
  const lines = () => [...relay.stderr().matchAll(/^memory (.*)\n/gm)];
  return {
    ...{ relay, port },
    post: (path: string, cookie: string) => call(port, path, { method: 'POST', headers: { Cookie: cookie } }),
    async signIn(user: string) {
      let cookie: string | undefined;
      // On a busy machine, Redis may count as away.
      await until(async () => {
        cookie = await signIn(port, user);
        return cookie !== undefined;
      }, 100);
      return cookie as unknown as string;
    },
    open: async () => openIn((await call(Number(METRICS_PORT), '/metrics')).body),
    /** It does nothing else meanwhile, so that Redis may count as away. */
    async memory() {
      const known = lines().length;
      relay.signal('SIGUSR2');
      await until(() => lines().length > known);
      return JSON.parse(lines()[known]?.[1] ?? '') as Memory;
    },
  };
}

/** How many sockets and timers keep the process, by their kinds, and the gauges; with those of the question. */
function openIn(metrics: string) {
  const samples = samplesOf(metrics);
  const gauges = samples.filter(({ name }) => GAUGES.test(name));
  const resources = samples
    .filter(({ name, labels }) => name === 'nodejs_active_resources' && RESOURCES.test(labels.type ?? ''))
    .map(({ labels, value }): [string, number] => [labels.type ?? '', value]);
  return {
    resources: Object.fromEntries(resources.sort()),
    gauges: Object.fromEntries(gauges.map(({ name, value }) => [name, value])),
  };
}

/** The cookie of a new session; undefined while Redis is away. */
async function signIn(port: number, user: string): Promise<string | undefined> {
  const answer = await call(port, '/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ username: user, password: CANARY.password }),
  });
  if (answer.status === 503) return undefined;
  if (answer.status !== 200) throw new Error(`sign-in answered ${answer.status}: ${answer.body}`);
  return (answer.headers['set-cookie'] ?? []).map((cookie) => cookie.split(';', 1)[0]).join('; ');
}

/** What instances have open at a Redis, and what they have stored there. */
export async function measureRedis(redis: RedisServer) {
  const lines = String(await redis.command('CLIENT', 'LIST'))
    .trim()
    .split('\n');
  const others = lines.filter((line) => !line.includes(' cmd=client|list '));
  const channels = ((await redis.command('PUBSUB', 'CHANNELS')) as string[]).sort();
  const subscribed = (await redis.command('PUBSUB', 'NUMSUB', ...channels)) as unknown[];
  return {
    connections: others.length,
    subscribers: others.filter((line) => !line.includes(' sub=0 ')).length,
    subscribed,
    keys: await countKeys(redis),
  };
}

/** As many as users and as keys of the bot service, whatever they do. */
const OF_USERS = [USER_PREFIX, 'bot-relay:key-use:'];

/** How many other keys there are, by what their names begin with. */
async function countKeys(redis: RedisServer): Promise<Record<string, number>> {
  const keys = (await redis.command('KEYS', '*')) as string[];
  const counts: Record<string, number> = {};
  for (const key of keys.sort()) {
    if (OF_USERS.some((prefix) => key.startsWith(prefix))) continue;
    // Nothing can restore a removed session: that is known until its idle limit.
    if (key.startsWith(SESSION_PREFIX) && (await redis.command('GET', key)) === REMOVED) continue;
    const [first, second = '', third] = key.replace(/\{(\w+):[^}]*\}/, '{$1}').split(':');
    const name = [first, second, ...(second.startsWith('{') ? [third] : [])].join(':');
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}
