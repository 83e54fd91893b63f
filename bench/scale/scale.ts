/**
 * Measures what many instances cost the Redis that they share: what a message and an open stream ask of it, and how long
 * a reservation takes while up to 100 instances ask. With `--cluster`, Redis is a cluster of three masters. README.md
 * says how.
 */
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { startCluster } from '../../tests/harness/redis/redis-cluster.ts';
import { startRedis, stopRedis } from '../../tests/harness/redis/redis-server.ts';
import { sendMany } from '../figures/messages.ts';
import { numberText } from '../report/format.ts';
import { startRelay } from '../support/relay-process.ts';
import { quantile } from '../support/statistics.ts';
import { openStreams, type StreamsWanted } from '../support/stream-clients.ts';
import { startUpstream } from '../support/upstream-process.ts';
import { sleep } from '../support/wait.ts';
import { simulate } from './simulate.ts';

const DURATION_MS = 10_000;
const MESSAGES = 3_000;
const STREAMS = 1_000;
const USERS = 1_000;
/** Streams with an event of 100 bytes every 100 ms. */
const DRIPPING = { count: 100, bot: 'drip-100000-100-100', bytes: 100 };
const DRIPPED_PER_SECOND = DRIPPING.count * 10;
/** The load of each row: together the bots take 5 messages a second each. */
const LOADS = [
  { instances: 1, bots: 1_000, messagesPerSecond: 200 },
  { instances: 10, bots: 1_000, messagesPerSecond: 200 },
  { instances: 100, bots: 1_000, messagesPerSecond: 200 },
  { instances: 100, bots: 20_000, messagesPerSecond: 200 },
  { instances: 100, bots: 10, messagesPerSecond: 100 },
  { instances: 100, bots: 1, messagesPerSecond: 20 },
];

/** What one core of an instance carries, by the costs of docs/performance.md, and 1 GiB of memory. */
const INSTANCE = { messageUs: 1_000, eventUs: 80, cpuUs: 1_000_000, streams: 5_900 };
/** What one master of Redis may use of its core in each second. */
const MASTER_US = 700_000;
/** A usual answer. */
const ANSWER = { seconds: 20, events: 200 };

/** The CPU of Redis for a message, an event, and an open stream in each second, in µs. */
interface Cost {
  readonly join: string;
  readonly messageUs: number;
  readonly eventUs: number;
  readonly streamUs: number;
}

/** What the masters of Redis have done in some time. */
interface Work {
  readonly commands: number;
  readonly cpuUs: number;
  /** Of the one that has done most. */
  readonly busiestUs: number;
  readonly seconds: number;
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
}

/** What a message, an event and an open stream ask of Redis. */
async function measureRelays(): Promise<Cost[]> {
  const placeUs = await measurePlaces();
  const costs: Cost[] = [];
  const unit = 'CPU of Redis, µs, per';
  heading(
    'relay',
    'commands per message',
    `${unit} message`,
    `${unit} event`,
    `${unit} open stream and second`,
  );
  for (const join of ['off', 'on']) {
    const upstream = await startUpstream();
    const mode = isCluster ? { REDIS_MODE: 'cluster' } : {};
    const relay = await startRelay(upstream.port, { REDIS_URL: server.url, ...mode, JOIN: join });
    const headers = [`Cookie: ${relay.cookie}`];
    await sendMany({ ...relay, headers }, MESSAGES);
    const perSecond = async () => (await workOf(() => sleep(DURATION_MS))).cpuUs / (DURATION_MS / 1000);
    const idle = await perSecond();
    const message = await workOf(() => sendMany({ ...relay, headers }, MESSAGES));
    const silent = { port: relay.port, headers, count: STREAMS, bot: 'silent-scale', bytes: 100 };
    const open = await whileOpen(silent, perSecond);
    const dripping = await whileOpen({ ...silent, ...DRIPPING }, perSecond);
    await relay.close();
    await upstream.close();
    const messageUs = (message.cpuUs - idle * message.seconds) / MESSAGES;
    // All streams of this relay are of one user, whose places are renewed together.
    const streamUs = placeUs + Math.max(0, open - idle) / STREAMS;
    const eventUs = Math.max(0, dripping - idle) / DRIPPED_PER_SECOND;
    costs.push({ join, messageUs, eventUs, streamUs });
    const commands = (message.commands / MESSAGES).toFixed(1);
    row(`JOIN=${join}`, commands, messageUs.toFixed(0), eventUs.toFixed(1), streamUs.toFixed(1));
  }
  return costs;
}

/** The CPU of Redis for the place of an open stream whose user has no other, in µs for each second. */
async function measurePlaces(): Promise<number> {
  const perSecond = async (streams: number) => {
    const load = { instances: 4, bots: 1, users: 4, messagesPerSecond: 0, durationMs: DURATION_MS, streams };
    const simulated = await simulate({ ...load, redisUrl: server.url, isCluster });
    return (await workOf(simulated.ended)).cpuUs / (DURATION_MS / 1000);
  };
  const idle = await perSecond(0);
  return Math.max(0, (await perSecond(STREAMS)) - idle) / STREAMS;
}

/** What `measure` finds while these streams are open. */
async function whileOpen(wanted: StreamsWanted, measure: () => Promise<number>): Promise<number> {
  const streams = await openStreams(wanted);
  await sleep(DURATION_MS / 2);
  const measured = await measure();
  streams.leave();
  return measured;
}

/** What so many instances and masters carry, by these costs, and which of the two is used up first. */
function printPlan(costs: readonly Cost[]): void {
  const columns = ['short messages a second', 'usual messages a second', 'silent open streams'];
  const titles = costs.flatMap(({ join }) => columns.map((title) => `${title}, JOIN=${join}`));
  heading('instances', 'masters of Redis', ...titles);
  for (const instances of [1, 10, 100]) {
    for (const masters of [1, 3, 10]) {
      const least = (ofInstance: number, ofMaster: number) => {
        const [carried, allowed] = [instances * ofInstance, masters * ofMaster];
        return `${numberText(Math.min(carried, allowed), 0)}${allowed < carried ? ' (Redis)' : ''}`;
      };
      const cells = costs.flatMap(({ messageUs, eventUs, streamUs }) => {
        const usual = messageUs + ANSWER.events * eventUs + ANSWER.seconds * streamUs;
        const ofInstance = INSTANCE.messageUs + ANSWER.events * INSTANCE.eventUs;
        return [
          least(INSTANCE.cpuUs / INSTANCE.messageUs, MASTER_US / messageUs),
          least(INSTANCE.cpuUs / ofInstance, MASTER_US / usual),
          least(INSTANCE.streams, MASTER_US / streamUs),
        ];
      });
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
    'failed, %',
  );
  for (const load of LOADS) {
    const simulated = await simulate({
      ...load,
      ...{ redisUrl: server.url, isCluster },
      ...{ users: USERS, streams: 0 },
      durationMs: DURATION_MS,
    });
    const { commands, cpuUs, busiestUs } = await workOf(simulated.ended);
    const { messages, failed, reservationsMs } = await simulated.seen();
    const counts = [load.instances, load.bots, messages / seconds, commands / seconds];
    const times = [0.5, 0.99].map((share) => quantile(reservationsMs, share).toFixed(2));
    const cpu = [cpuUs / messages, busiestUs / (seconds * 10_000)];
    // On a busy machine some of the instances get their answer too late.
    const failedShare = ((100 * failed) / (messages + failed)).toFixed(1);
    row(...[...counts, ...cpu].map((count) => numberText(count, 0)), ...times, failedShare);
  }
}

async function workOf(work: () => Promise<unknown>): Promise<Work> {
  const before = await workSoFar(redis);
  const startedAt = performance.now();
  await work();
  const seconds = (performance.now() - startedAt) / 1000;
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
    seconds,
  };
}

/** What each master has done since it began. */
async function workSoFar(from: Redis): Promise<Pick<Work, 'commands' | 'cpuUs'>[]> {
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
