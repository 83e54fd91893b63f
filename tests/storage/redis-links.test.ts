import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { afterEach, expect, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { clientFor } from '../../src/storage/redis-link.ts';
import type { RedisSettings } from '../../src/storage/redis-settings.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';

/** A server that speaks as much of Redis's protocol as a test needs. */
interface FakeRedis {
  readonly host: string;
  readonly port: number;
  readonly sockets: ReadonlySet<Socket>;
  close(): void;
}

/** A text as a reply. */
const bulk = (text: string) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
const HELLO = `%1\r\n${bulk('proto')}:3\r\n`;
/** The words of one command; none of them may be empty. */
const COMMAND = /^\*\d+\r\n(?:\$\d+\r\n.+\r\n)+?(?=\*|$)/;

/** Answers HELLO and PING, and each other command with what `answer` returns; not at all if that is undefined. */
async function fakeRedis(
  answer: (words: readonly string[], socket: Socket) => string | undefined,
): Promise<FakeRedis> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    let text = '';
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    socket.on('data', (data) => {
      text += data;
      for (let found = COMMAND.exec(text); found; found = COMMAND.exec(text)) {
        text = text.slice(found[0].length);
        const words = [...found[0].matchAll(/\$\d+\r\n(.+)\r\n/g)].map(([, word = '']) => word.toUpperCase());
        const given = answer(words, socket);
        const known = words[0] === 'HELLO' ? HELLO : words[0] === 'PING' ? '+PONG\r\n' : undefined;
        socket.write(given ?? known ?? '');
      }
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    ...{ port, sockets, host: `127.0.0.1:${port}` },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

const opened: (Redis | FakeRedis)[] = [];
afterEach(() => {
  for (const one of opened.splice(0)) one.close();
});

const SENTINEL = { master: 'm', user: undefined, password: undefined };

/** Its log is in `lines`, each as its message and cause. */
function open(url: string, more: Partial<RedisSettings> = {}) {
  const lines: string[] = [];
  const write = (line: string) => {
    const { msg, cause } = JSON.parse(line) as { msg: string; cause?: string };
    lines.push(cause === undefined ? msg : `${msg}: ${cause}`);
  };
  // A busy machine is no slow Redis.
  const settings = { url: secret(url), logger: createLogger('info', { write }), commandTimeoutMs: 20_000 };
  const redis = openRedis({ ...settings, ...more });
  opened.push(redis);
  return { redis, lines };
}

async function fake(...given: Parameters<typeof fakeRedis>): Promise<FakeRedis> {
  const server = await fakeRedis(...given);
  opened.push(server);
  return server;
}

/** The reply to CLUSTER SLOTS with these masters. */
function slotsOf(ports: readonly number[]): string {
  const share = 16_384 / (ports.length || 1);
  const ranges = ports.map((port, n) => {
    const node = `*3\r\n${bulk('127.0.0.1')}:${port}\r\n${bulk(`id${n}`)}`;
    return `*3\r\n:${n * share}\r\n:${(n + 1) * share - 1}\r\n${node}`;
  });
  return `*${ports.length}\r\n${ranges.join('')}`;
}

/** A server of a cluster of these masters; `info` returns its state, or undefined to answer by itself later. */
function member(ports: readonly number[], info: Parameters<typeof fakeRedis>[0] = () => OK) {
  return fake((words, socket) => {
    if (words[1] === 'SLOTS') return slotsOf(ports);
    if (words[1] === 'INFO') return info(words, socket);
    return words[0] === 'GET' ? bulk('value') : undefined;
  });
}
const OK = bulk('cluster_state:ok');

test('a server of the URL without slots, and silent ones, are passed over', async () => {
  const blank = await member([], () => bulk('cluster_state:fail'));
  const silent = await Promise.all([1, 2, 3, 4].map(() => fake(() => '')));
  const ports: number[] = [];
  const good = await member(ports);
  ports.push(good.port);
  const hosts = [...silent, blank, good].map(({ host }) => host);
  const { redis, lines } = open(`redis://${hosts.join(',')}`, { isCluster: true });
  // They are asked at the same time: none of them answers.
  await until(() => silent.every(({ sockets }) => sockets.size > 0));
  await redis.ready(30_000);
  expect(await redis.run((client) => client.get('a'))).toBe('value');
  expect(lines).toEqual(['redis ready']);
});

test('a cluster without slots is not ready, and is found when it has them', async () => {
  const ports: number[] = [];
  const server = await member(ports);
  const { redis, lines } = open(`redis://${server.host}`, { isCluster: true });
  await until(() => lines.length > 0);
  expect(lines).toEqual(['redis lost: CLUSTERDOWN']);
  expect(await redis.answers()).toBe(false);
  await expect(redis.onEach((one) => one.ping())).rejects.toMatchObject({ cause: 'CLUSTERDOWN' });
  ports.push(server.port);
  await redis.ready(30_000);
  expect(await redis.run((client) => client.get('a'))).toBe('value');
});

test('a master that is lost while the others are still asked is noticed', async () => {
  const ports: number[] = [];
  let asked = 0;
  const lost = Promise.withResolvers<void>();
  const first = await member(ports, (_words, socket) => {
    asked += 1;
    if (asked !== 2) return OK;
    // Only the first link: its probe was another connection.
    socket.once('close', lost.resolve);
    setImmediate(() => socket.end());
    return OK;
  });
  const second = await member(ports, (_words, socket) => {
    void lost.promise.then(() => socket.write(OK));
    return undefined;
  });
  ports.push(first.port, second.port);
  const { redis, lines } = open(`redis://${first.host}`, { isCluster: true });
  await until(() => lines.includes('redis ready'));
  expect(lines).toEqual(['redis lost: CLOSED', 'redis ready']);
  for (const key of ['a', 'b', 'c', 'd']) expect(await redis.run((client) => client.get(key))).toBe('value');
});

test('an error that is neither a reply nor a timeout makes a new link', async () => {
  const ports: number[] = [];
  const server = await member(ports);
  ports.push(server.port);
  const { redis, lines } = open(`redis://${server.host}`, { isCluster: true });
  await redis.ready(30_000);
  await expect(redis.run(() => Promise.reject(new TypeError('no slot')))).rejects.toMatchObject({
    cause: 'TypeError',
  });
  await until(() => lines.length === 3);
  expect(lines).toEqual(['redis ready', 'redis lost: TypeError', 'redis ready']);
});

test.each([
  ['one server', {}],
  ['a cluster', { isCluster: true }],
  ['Sentinel', { sentinel: SENTINEL }],
])('closing ends the attempt to connect to %s that is under way', async (_kind, more) => {
  // No attempt takes too long.
  stopClock();
  const silent = await fake(() => '');
  const { redis } = open(`redis://${silent.host}`, more);
  await until(() => silent.sockets.size === 1);
  redis.close();
  await until(() => silent.sockets.size === 0);
  await sleep(600);
  expect(silent.sockets.size).toBe(0);
});

test('an attempt at a cluster that takes too long leaves no connection open', async () => {
  let hasProbed = false;
  let asking: Socket | undefined;
  const server = await fake((words, socket) => {
    if (words[1] === 'INFO') {
      hasProbed = true;
      return OK;
    }
    if (!hasProbed) return undefined;
    // After the probe, the one that asks for the slots.
    asking = socket;
    return '';
  });
  const { lines } = open(`redis://${server.host}`, { isCluster: true });
  await until(() => lines.includes('redis lost: TIMEOUT'));
  await until(() => asking?.closed === true);
});

const role = (name: string) => `*3\r\n${bulk(name)}:0\r\n*0\r\n`;
const names = (host: string, port: number | string) => () => `*2\r\n${bulk(host)}${bulk(String(port))}`;

test('a sentinel that names a server that is no master is passed over', async () => {
  const replica = await fake((words) =>
    words[0] === 'ROLE'
      ? `*5\r\n${bulk('slave')}${bulk('h')}:1\r\n${bulk('connected')}:0\r\n`
      : bulk('stale'),
  );
  const master = await fake(([word]) =>
    word === 'ROLE' ? role('master') : word === 'GET' ? bulk('new') : undefined,
  );
  const sentinel = (port: number) =>
    fake(([word]) => (word === 'SENTINEL' ? names('127.0.0.1', port)() : undefined));
  const [old, good] = [await sentinel(replica.port), await sentinel(master.port)];
  const { redis, lines } = open(`redis://${old.host},${good.host}`, { sentinel: SENTINEL });
  await redis.ready(30_000);
  expect(await redis.run((client) => client.get('a'))).toBe('new');
  expect(lines).toEqual(['redis ready']);
  const alone = open(`redis://${old.host}`, { sentinel: SENTINEL });
  await until(() => alone.lines.length > 0);
  expect(alone.lines).toEqual(['redis lost: READONLY']);
});

test.each([
  ['nothing', () => '*0\r\n'],
  ['no port', () => `*1\r\n${bulk('h')}`],
  ['no host', () => `*2\r\n$0\r\n\r\n${bulk('6379')}`],
  ['too high a port', names('127.0.0.1', 99_999)],
  ['a word as port', names('127.0.0.1', 'x')],
])('a sentinel that answers with %s names no master', async (_what, answer) => {
  const sentinel = await fake(([word]) => (word === 'SENTINEL' ? answer() : undefined));
  const { lines } = open(`redis://${sentinel.host}`, { sentinel: SENTINEL });
  await until(() => lines.length > 0);
  expect(lines).toEqual(['redis lost: NOMASTER']);
});

test('a server with an IPv6 address is reached', async () => {
  const server = createServer().listen(0, '::1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const reached = once(server, 'connection');
  const { redis } = open(`redis://[::1]:${port}`);
  const [socket] = await reached;
  redis.close();
  socket.destroy();
  server.close();
});

test('clients of different servers are of one class, since each class with all commands takes memory', () => {
  const { signal } = new AbortController();
  const [one, other] = [1, 2].map((port) =>
    clientFor({
      node: { host: `127.0.0.1:${port}`, hostname: '127.0.0.1', port },
      tls: undefined,
      user: {},
      signal,
    }),
  );
  expect(one?.constructor).toBe(other?.constructor);
});
