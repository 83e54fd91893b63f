/**
 * Shows whether a relay holds more after many messages than after few: memory, timers, sockets, open files, and with
 * `--redis` its clients, keys and memory. `--messages N`: 1,000,000 by default; `--collect`: collects all garbage after
 * each 50,000 messages, and shows what is left; `NAME=VALUE`: a variable of the relay.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createLogger } from '../src/logger.ts';
import { secret } from '../src/secret.ts';
import { openRedis } from '../src/storage/redis.ts';
import { startRedis, stopRedis } from '../tests/harness/redis/redis-server.ts';
import { freePort } from '../tests/harness/relay/free-port.ts';
import { sendMany } from './figures/messages.ts';
import { rssBytes } from './support/process-usage.ts';
import { startRelay } from './support/relay-process.ts';
import { overRounds } from './support/statistics.ts';
import { openStreams } from './support/stream-clients.ts';
import { startUpstream } from './support/upstream-process.ts';
import { sleep, waitUntil } from './support/wait.ts';

const SAMPLE_EVERY = 25_000;
const COLLECT_EVERY = 50_000;
const COLLECT_TIMEOUT_MS = 10_000;
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
const MESSAGES = /^bot_relay_requests_total\{[^}]*message\/sse"[^}]*\} (\d+)/gm;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    redis: { type: 'boolean', default: false },
    messages: { type: 'string', default: '1000000' },
    collect: { type: 'boolean', default: false },
  },
});
const variables = Object.fromEntries(positionals.map((text) => text.split('=', 2) as [string, string]));
const metricsPort = await freePort();
// Also if the run is stopped.
process.once('exit', stopRedis);
const server = values.redis ? await startRedis() : undefined;
const redis = server && openRedis({ url: secret(server.url), logger: createLogger('silent') });
await redis?.ready(5_000);
const upstream = await startUpstream();
const folder = mkdtempSync(join(tmpdir(), 'bot-relay-long-run-'));
const usageFile = join(folder, 'usage.json');
const environment = {
  ...{ METRICS_PORT: String(metricsPort), JOIN_GRACE_MS: '10000', USAGE_FOLDER: folder, ...variables },
  ...(server && { REDIS_URL: server.url }),
};
const collector = ['--expose-gc', '--import', new URL('support/collector.ts', import.meta.url).href];
const relay = await startRelay(upstream.port, environment, values.collect ? collector : []);
let refused = 0;
const columns = ['messages', 'memory, MiB', 'heap, MiB', ...Object.keys(HANDLES)];
if (values.collect) columns.push('heap after a collection, MiB', 'outside of it, MiB');
if (redis) columns.push('clients of Redis', 'keys', 'memory of Redis, MiB');
console.log(`| ${columns.join(' | ')} |\n|${'---:|'.repeat(columns.length)}`);
try {
  for (let wanted = SAMPLE_EVERY; wanted <= Number(values.messages); wanted += SAMPLE_EVERY) {
    const cells = await sample(wanted);
    console.log(`| ${[await messagesSoFar(), ...cells].join(' | ')} |`);
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
  rmSync(folder, { recursive: true });
}

/** Sends until there are so many, and measures: memory while they are sent, handles when nothing is open. */
async function sample(wanted: number): Promise<(string | number)[]> {
  const memory: number[] = [];
  const heap: number[] = [];
  while ((await messagesSoFar()) < wanted) {
    const headers = [`Cookie: ${await relay.signIn()}`];
    // On a busy machine Redis may answer too late.
    await sendMany({ ...relay, headers }, MESSAGES_PER_SESSION).catch(() => void refused++);
    memory.push(rssBytes(relay.pid) / MIB);
    heap.push(Number(HEAP.exec(await metrics())?.[1]) / MIB);
  }
  await leaveStreams().catch(() => void refused++);
  const text = await metrics();
  const handles = Object.values(HANDLES).map((pattern) => pattern.exec(text)?.[1] ?? '0');
  const parts = [overRounds(memory, 0), Math.min(...heap).toFixed(0), ...handles];
  if (values.collect) parts.push(...(wanted % COLLECT_EVERY === 0 ? await collect() : ['', '']));
  return redis ? [...parts, ...(await ofRedis())] : parts;
}

/** Counted by the relay, since a session can begin before all messages of the one before were sent. */
async function messagesSoFar(): Promise<number> {
  return [...(await metrics()).matchAll(MESSAGES)].reduce((sum, [, count]) => sum + Number(count), 0);
}

/** How large the heap is without garbage, and what its objects hold outside of it, such as buffers. */
async function collect(): Promise<string[]> {
  rmSync(usageFile, { force: true });
  process.kill(relay.pid, 'SIGUSR2');
  await waitUntil(() => existsSync(usageFile), COLLECT_TIMEOUT_MS);
  const usage = JSON.parse(readFileSync(usageFile, 'utf8')) as NodeJS.MemoryUsage;
  return [usage.heapUsed, usage.external].map((bytes) => (bytes / MIB).toFixed(1));
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
