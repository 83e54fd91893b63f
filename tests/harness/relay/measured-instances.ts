import { REMOVED, SESSION_PREFIX, USER_PREFIX } from '../../../src/authenticate/sessions/session-script.ts';
import { call } from '../clients/call.ts';
import { eventually, until } from '../clock/until.ts';
import type { RedisServer } from '../redis/redis.ts';
import { freePort } from './free-port.ts';
import { samplesOf } from './metric-samples.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, untilReady, usersFile } from './process.ts';
import { CANARY } from './secrets.ts';

interface Memory {
  /** How many objects of some classes are in use. Some timers do not keep the process. */
  readonly objects: Readonly<Record<string, number>>;
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

/** The gauges, and what keeps the process. */
const OPEN = /^bot_relay_(open_streams|open_messages|open_live_streams|run_log_bytes)$/;
const KEEPS = /^(TCPServerWrap|TCPSocketWrap|Timeout)$/;

/** An instance in a process of its own, which tells what it has open. */
export type MeasuredInstance = Awaited<ReturnType<typeof startMeasured>>;

/** Starts an instance with these users, who all have the password of the tests. */
export async function startMeasured(
  upstreamUrl: string,
  users: readonly string[],
  environment: Readonly<Record<string, string>>,
) {
  const METRICS_PORT = String(await freePort());
  const relay = startProcess({
    folder: freshFolder({ 'users.json': usersFile(users) }),
    nodeArgs: ['--expose-gc', '--import', `data:text/javascript,${encodeURIComponent(MEASURES)}`],
    environment: { ...inFrontOf(upstreamUrl), METRICS_PORT, ...environment },
  });
  const port = await relay.listening();
  await untilReady(port);
  const lines = () => [...relay.stderr().matchAll(/^memory (.*)\n/gm)];
  return {
    ...{ relay, port },
    post: (path: string, cookie: string) => call(port, path, { method: 'POST', headers: { Cookie: cookie } }),
    // On a busy machine, Redis may count as away.
    signIn: (user: string) => eventually(() => signInAt(port, user, CANARY.password), 100),
    /** The gauges, and how many sockets and timers there are. The request that asks for them is counted, too. */
    async open() {
      const samples = samplesOf((await call(Number(METRICS_PORT), '/metrics')).body);
      const open = samples.filter(({ name, labels: { type = '' } }) =>
        name === 'nodejs_active_resources' ? KEEPS.test(type) : OPEN.test(name),
      );
      return Object.fromEntries(open.map(({ name, labels, value }) => [labels.type ?? name, value]).sort());
    },
    /** It does nothing else meanwhile, so that Redis may count as away. */
    async memory() {
      const known = lines().length;
      relay.signal('SIGUSR2');
      await until(() => lines().length > known);
      return JSON.parse(lines()[known]?.[1] ?? '') as Memory;
    },
  };
}

/** As many as users and as keys of the bot service, whatever they do. */
const OF_USERS = [USER_PREFIX, 'bot-relay:key-use:'];

/** What instances have open at a Redis, and the other keys there. */
export async function measureRedis({ command }: RedisServer) {
  const lines = String(await command('CLIENT', 'LIST'))
    .trim()
    .split('\n');
  const others = lines.filter((line) => !line.includes(' cmd=client|list '));
  const channels = ((await command('PUBSUB', 'CHANNELS')) as string[]).sort();
  const subscribed = (await command('PUBSUB', 'NUMSUB', ...channels)) as unknown[];
  const keys: string[] = [];
  for (const key of ((await command('KEYS', '*')) as string[]).sort()) {
    if (OF_USERS.some((prefix) => key.startsWith(prefix))) continue;
    // Nothing can restore a removed session: that is known until its idle limit.
    if (key.startsWith(SESSION_PREFIX) && (await command('GET', key)) === REMOVED) continue;
    keys.push(key);
  }
  const subscribers = others.filter((line) => !line.includes(' sub=0 ')).length;
  return { connections: others.length, subscribers, subscribed, keys };
}
