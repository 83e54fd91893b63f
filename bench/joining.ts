/**
 * Measures what joining costs: 1,000 runs at once, each of ten events in three seconds, with joining as shipped and
 * without it, in memory and with Redis. The two take turns, so that other load of the machine affects both.
 */
import { startRedis, stopRedis } from '../tests/harness/redis/redis-server.ts';
import { sendMany } from './figures/messages.ts';
import type { RunningPeer } from './support/peers.ts';
import { cpuUs } from './support/process-usage.ts';
import { startRelay } from './support/relay-process.ts';
import { overRounds } from './support/statistics.ts';
import { openStreams } from './support/stream-clients.ts';
import { startUpstream } from './support/upstream-process.ts';
import { sleep } from './support/wait.ts';

const PAIRS = Number(process.argv[2] ?? 10);
const RUNS = 1_000;
/** Ten events of 100 bytes, one every 330 ms. */
const BOT = 'drip-10-100-330';
const BYTES = 100;
const WARM_UP_MESSAGES = 15_000;
/** What is left to do after the runs, in ms: their ends are stored. */
const SETTLE_MS = 2_000;

const upstream = await startUpstream();
const redis = await startRedis();
try {
  for (const [storage, environment] of [
    ['memory', {}],
    ['Redis', { REDIS_URL: redis.url }],
  ] as const) {
    // As shipped, a run goes on for a while without its client.
    const shipped = { ...environment, JOIN_GRACE_MS: '10000' };
    const [on, off] = await Promise.all([start(shipped), start({ ...shipped, JOIN: 'off' })]);
    const pairs: { readonly on: number; readonly off: number }[] = [];
    for (let pair = 0; pair < PAIRS; pair++) {
      const isFirst = pair % 2 === 0;
      const first = await cpuOfRuns(isFirst ? on : off);
      const second = await cpuOfRuns(isFirst ? off : on);
      pairs.push(isFirst ? { on: first, off: second } : { on: second, off: first });
    }
    const [withJoining, without] = [pairs.map((pair) => pair.on), pairs.map((pair) => pair.off)];
    console.log(`${storage}: CPU of a run with joining ${overRounds(withJoining, 0)} µs`);
    console.log(`${storage}: CPU of a run with JOIN=off ${overRounds(without, 0)} µs`);
    const ratios = pairs.map((pair) => pair.on / pair.off);
    console.log(`${storage}: ratio of each pair ${overRounds(ratios, 2)}`);
    await Promise.all([on.close(), off.close()]);
  }
} finally {
  await upstream.close();
  stopRedis();
}

async function start(environment: Readonly<Record<string, string>>): Promise<RunningPeer> {
  const { cookie, ...relay } = await startRelay(upstream.port, environment);
  const peer = { ...relay, headers: [`Cookie: ${cookie}`] };
  await sendMany(peer, WARM_UP_MESSAGES);
  await cpuOfRuns(peer);
  return peer;
}

/** CPU of one run, in µs. @throws Error if an event is missing, changed or out of order */
async function cpuOfRuns({ port, pid, headers }: RunningPeer): Promise<number> {
  const before = cpuUs(pid);
  const clients = await openStreams({ port, headers, count: RUNS, bot: BOT, bytes: BYTES });
  await clients.ended;
  await sleep(SETTLE_MS);
  const used = cpuUs(pid) - before;
  const [failure] = clients.failures;
  clients.leave();
  if (failure !== undefined) throw new Error(failure);
  return used / RUNS;
}
