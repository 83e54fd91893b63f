/**
 * Shows whether a relay holds more after many messages than after few: memory, timers, sockets, open files, and with
 * Redis its clients, keys and memory. `--redis`: sessions and runs in Redis; `--messages N`: 1,000,000 by default;
 * `NAME=VALUE`: a variable of the relay.
 */
import { parseArgs } from 'node:util';
import { createLogger } from '../src/logger.ts';
import { secret } from '../src/secret.ts';
import { openRedis } from '../src/storage/redis.ts';
import { freePort } from '../tests/support/free-port.ts';
import { startRedis, stopRedis } from '../tests/support/redis-server.ts';
import { sendMany } from './figures/messages.ts';
import { rssBytes } from './support/process-usage.ts';
import { startRelay } from './support/relay-process.ts';
import { quantile } from './support/statistics.ts';
import { openStreams } from './support/stream-clients.ts';
import { startUpstream } from './support/upstream-process.ts';
import { sleep, waitUntil } from './support/wait.ts';

const SAMPLE_EVERY = 25_000;
/** So many messages have one session and its connections. */
const MESSAGES_PER_SESSION = 2_500;
/** Streams of each sample that their clients leave. */
const LEFT_STREAMS = 200;
const LEFT_BOT = 'silent-left';
const LEFT_TIMEOUT_MS = 30_000;
const MIB = 2 ** 20;
/** What the metrics of Node.js call them. */
const HANDLES = {
  timers: /^nodejs_active_resources\{type="Timeout"\} (\d+)/m,
  sockets: /^nodejs_active_resources\{type="TCPSocketWrap"\} (\d+)/m,
  'all handles': /^nodejs_active_resources_total (\d+)/m,
  'open files': /^process_open_fds (\d+)/m,
};
const HEAP = /^nodejs_heap_size_used_bytes (\S+)/m;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { redis: { type: 'boolean', default: false }, messages: { type: 'string', default: '1000000' } },
});
const variables = Object.fromEntries(positionals.map((text) => text.split('=', 2) as [string, string]));
const metricsPort = await freePort();
const server = values.redis ? await startRedis() : undefined;
const redis = server && openRedis({ url: secret(server.url), logger: createLogger('silent') });
await redis?.ready(5_000);
const upstream = await startUpstream();
const relay = await startRelay(upstream.port, {
  ...{ METRICS_PORT: String(metricsPort), JOIN_GRACE_MS: '10000', ...variables },
  ...(server && { REDIS_URL: server.url }),
});
let refused = 0;
const columns = ['messages', 'memory, MiB', 'heap, MiB', ...Object.keys(HANDLES)];
if (redis) columns.push('clients of Redis', 'keys', 'memory of Redis, MiB');
console.log(`| ${columns.join(' | ')} |\n|${'---:|'.repeat(columns.length)}`);
try {
  for (let sent = SAMPLE_EVERY; sent <= Number(values.messages); sent += SAMPLE_EVERY) {
    console.log(`| ${[sent, ...(await sample())].join(' | ')} |`);
  }
} finally {
  await close();
}

async function close(): Promise<void> {
  console.log(`${refused} times a message was refused, after which the next session began early`);
  await relay.close();
  await upstream.close();
  redis?.close();
  stopRedis();
}

/** Sends the messages of one sample, and measures: memory while they are sent, handles when nothing is open. */
async function sample(): Promise<(string | number)[]> {
  const memory: number[] = [];
  const heap: number[] = [];
  for (let sent = 0; sent < SAMPLE_EVERY; sent += MESSAGES_PER_SESSION) {
    const headers = [`Cookie: ${await relay.signIn()}`];
    // On a busy machine Redis may answer too late.
    await sendMany({ ...relay, headers }, MESSAGES_PER_SESSION).catch(() => void refused++);
    memory.push(rssBytes(relay.pid) / MIB);
    heap.push(Number(HEAP.exec(await metrics())?.[1]) / MIB);
  }
  await leaveStreams().catch(() => void refused++);
  const text = await metrics();
  const handles = Object.values(HANDLES).map((pattern) => pattern.exec(text)?.[1] ?? '0');
  const parts = [quantile(memory, 0.5).toFixed(0), Math.min(...heap).toFixed(0), ...handles];
  return redis ? [...parts, ...(await ofRedis())] : parts;
}

/** Clients that leave their streams, until the bot service has seen the last of them go. */
async function leaveStreams(): Promise<void> {
  const headers = [`Cookie: ${relay.cookie}`];
  const wanted = { port: relay.port, headers, count: LEFT_STREAMS, bot: LEFT_BOT, bytes: 100 };
  (await openStreams(wanted)).leave();
  await waitUntil(async () => (await upstream.open(LEFT_BOT)).count === 0, LEFT_TIMEOUT_MS);
  await sleep(1_000);
}

async function metrics(): Promise<string> {
  return (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
}

async function ofRedis(): Promise<string[]> {
  const [text = ''] = (await redis?.onEach((one) => one.info())) ?? [];
  const field = (pattern: RegExp) => Number(pattern.exec(text)?.[1]);
  const memory = (field(/^used_memory:(\d+)/m) / MIB).toFixed(0);
  return [`${field(/^connected_clients:(\d+)/m)}`, `${field(/^db0:keys=(\d+)/m)}`, memory];
}
