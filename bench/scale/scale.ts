/**
 * Measures what many instances cost the Redis that they share: what a message and an open stream ask of it, and how long
 * a reservation takes while up to 100 instances ask. With `--cluster`, Redis is a cluster of three masters. README.md
 * says how.
 */
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { startCluster } from '../../tests/support/redis-cluster.ts';
import { stopProcessesOfRedis } from '../../tests/support/redis-process.ts';
import { startRedis, stopRedis } from '../../tests/support/redis-server.ts';
import { sendMany } from '../figures/messages.ts';
import { numberText } from '../report/format.ts';
import { startRelay } from '../support/relay-process.ts';
import { quantile } from '../support/statistics.ts';
import { openStreams } from '../support/stream-clients.ts';
import { startUpstream } from '../support/upstream-process.ts';
import { sleep } from '../support/wait.ts';
import { simulate } from './simulate.ts';

const DURATION_MS = 10_000;
const MESSAGES = 3_000;
const STREAMS = 1_000;
const USERS = 1_000;
/** The load of each row: together the bots take 5 messages a second each. */
const LOADS = [
  { instances: 1, bots: 1_000, messagesPerSecond: 400 },
  { instances: 10, bots: 1_000, messagesPerSecond: 400 },
  { instances: 100, bots: 1_000, messagesPerSecond: 400 },
  { instances: 100, bots: 20_000, messagesPerSecond: 400 },
  { instances: 100, bots: 10, messagesPerSecond: 100 },
  { instances: 100, bots: 1, messagesPerSecond: 20 },
];

/** What an instance carries on half of a core, and what a master of Redis may use of one. */
const INSTANCE = { messages: 500, streams: 5_000 };
const MASTER_US = 500_000;

/** The CPU of Redis for a message, and for an open stream in each second, in µs. */
interface Cost {
  readonly join: string;
  readonly messageUs: number;
  readonly streamUs: number;
}

/** What the masters of Redis have done in some time. */
interface Work {
  readonly commands: number;
  readonly cpuUs: number;
  /** Of the one that has done most. */
  readonly busiestUs: number;
}

const isCluster = process.argv.includes('--cluster');
const server = await (isCluster ? startCluster() : startRedis());
const redis = openRedis({ url: secret(server.url), isCluster, logger: createLogger('silent') });
await redis.ready(5_000);
try {
  const costs = await measureRelays();
  await measureInstances();
  printPlan(costs);
} finally {
  redis.close();
  stopRedis();
  stopProcessesOfRedis();
}

/** What a message and an open stream of real relays ask of Redis. */
async function measureRelays(): Promise<Cost[]> {
  const costs: Cost[] = [];
  heading('relay', 'commands per message', 'CPU of Redis per message, µs', 'per open stream and second, µs');
  for (const join of ['off', 'on']) {
    const upstream = await startUpstream();
    const mode = isCluster ? { REDIS_MODE: 'cluster' } : {};
    const relay = await startRelay(upstream.port, { REDIS_URL: server.url, ...mode, JOIN: join });
    const headers = [`Cookie: ${relay.cookie}`];
    await sendMany({ ...relay, headers }, MESSAGES);
    const message = await workOf(() => sendMany({ ...relay, headers }, MESSAGES));
    const idle = await workOf(() => sleep(DURATION_MS));
    const wanted = { port: relay.port, headers, count: STREAMS, bot: 'silent-scale', bytes: 100 };
    const streams = await openStreams(wanted);
    await sleep(DURATION_MS / 2);
    const open = await workOf(() => sleep(DURATION_MS));
    streams.leave();
    await relay.close();
    await upstream.close();
    const messageUs = message.cpuUs / MESSAGES;
    const streamUs = Math.max(0, open.cpuUs - idle.cpuUs) / STREAMS / (DURATION_MS / 1000);
    costs.push({ join, messageUs, streamUs });
    row(`JOIN=${join}`, (message.commands / MESSAGES).toFixed(1), messageUs.toFixed(0), streamUs.toFixed(1));
  }
  return costs;
}

/** What so many instances and masters carry, by the measured costs; each of the two may be what is used up first. */
function printPlan(costs: readonly Cost[]): void {
  heading(
    'instances',
    'masters of Redis',
    ...costs.flatMap(({ join }) => [`messages/s, JOIN=${join}`, 'or open streams']),
  );
  const least = (instances: number, redis: number) =>
    `${numberText(Math.min(instances, redis), 0)}${redis < instances ? ' (Redis)' : ''}`;
  for (const instances of [1, 10, 100]) {
    for (const masters of [1, 3, 10]) {
      const cells = costs.flatMap(({ messageUs, streamUs }) => [
        least(instances * INSTANCE.messages, (masters * MASTER_US) / messageUs),
        least(instances * INSTANCE.streams, (masters * MASTER_US) / streamUs),
      ]);
      row(String(instances), String(masters), ...cells);
    }
  }
}

/** What instances ask that carry nothing, as many as one machine cannot run. */
async function measureInstances(): Promise<void> {
  const seconds = DURATION_MS / 1000;
  heading(
    'instances',
    'bots',
    'messages/s',
    'commands/s',
    'CPU of Redis per message, µs',
    'busiest master, % of a core',
    'slot, p50, ms',
    'p99, ms',
  );
  for (const load of LOADS) {
    const simulated = await simulate({
      ...load,
      ...{ redisUrl: server.url, isCluster },
      users: USERS,
      durationMs: DURATION_MS,
    });
    const { commands, cpuUs, busiestUs } = await workOf(simulated.ended);
    const { messages, failed, reservationsMs } = await simulated.seen();
    if (failed > 0) throw new Error(`${failed} of ${messages} messages failed`);
    const counts = [load.instances, load.bots, messages / seconds, commands / seconds];
    const times = [0.5, 0.99].map((share) => quantile(reservationsMs, share).toFixed(2));
    const cpu = [cpuUs / messages, busiestUs / (seconds * 10_000)];
    row(...[...counts, ...cpu].map((count) => numberText(count, 0)), ...times);
  }
}

async function workOf(work: () => Promise<unknown>): Promise<Work> {
  const before = await workSoFar(redis);
  await work();
  const after = await workSoFar(redis);
  const done = after.map((one, n) => ({
    commands: one.commands - (before[n]?.commands ?? 0),
    cpuUs: one.cpuUs - (before[n]?.cpuUs ?? 0),
  }));
  const sum = (name: 'commands' | 'cpuUs') => done.reduce((total, one) => total + one[name], 0);
  return {
    commands: sum('commands'),
    cpuUs: sum('cpuUs'),
    busiestUs: Math.max(...done.map(({ cpuUs }) => cpuUs)),
  };
}

/** What each master has done since it began. */
async function workSoFar(from: Redis): Promise<Omit<Work, 'busiestUs'>[]> {
  const texts = await from.onEach((server) => server.info());
  return texts.map((text) => {
    const field = (name: string) => Number(new RegExp(`^${name}:(.*)\r?$`, 'm').exec(text)?.[1]);
    return {
      commands: field('total_commands_processed'),
      cpuUs: (field('used_cpu_user') + field('used_cpu_sys')) * 1e6,
    };
  });
}

function heading(...cells: string[]): void {
  console.log();
  row(...cells);
  console.log(`|${'---:|'.repeat(cells.length)}`);
}

function row(...cells: string[]): void {
  console.log(`| ${cells.join(' | ')} |`);
}
