/**
 * Measures how exactly three instances with one Redis keep the budget of a bot, and what it costs: 10,000 messages of
 * 200 users to 40 bots, some in bursts of 19 and some one by one. The bot service counts what arrives.
 */
import { request } from 'node:http';
import { createLogger } from '../src/logger.ts';
import { memoryBudgets } from '../src/pace/memory-budgets.ts';
import { redisBudgets } from '../src/pace/redis-budgets.ts';
import { secret } from '../src/secret.ts';
import { openRedis } from '../src/storage/redis.ts';
import { startRedis, stopRedis } from '../tests/harness/redis/redis-server.ts';
import { messageBody } from './support/message.ts';
import { type RelayProcess, startRelay } from './support/relay-process.ts';
import { quantile } from './support/statistics.ts';
import { startUpstream } from './support/upstream-process.ts';
import { sleep } from './support/wait.ts';

const INSTANCES = 3;
const BOTS = 40;
/** Per bot, with one heavy user: 200 users and 10,000 messages in all. */
const LIGHT_USERS = 4;
const BURSTS = 10;
const BURST = 19;
const LIGHT_MESSAGES = 15;
/** The pause between two messages of a light user, and before the first message of a heavy one, in ms. */
const LONGEST_PAUSE_MS = 5_000;
const LIMIT = 5;
const WINDOW_MS = 1_000;
const RESERVATIONS = 20_000;

interface Sent {
  readonly bot: string;
  readonly heavy: boolean;
  /** Times of the monotonic clock, in ms. */
  readonly sentAt: number;
  readonly firstByteAt: number;
}

const redis = await startRedis();
const upstream = await startUpstream();
const environment = {
  REDIS_URL: redis.url,
  RATE_LIMIT: String(LIMIT),
  RATE_WINDOW_MS: String(WINDOW_MS),
  RATE_MAX_WAIT_MS: '600000',
};
const relays: RelayProcess[] = [];
for (let n = 0; n < INSTANCES; n++) relays.push(await startRelay(upstream.port, environment));

const users: string[][] = [];
for (let bot = 0; bot < BOTS; bot++) users.push(await signIn(1 + LIGHT_USERS));
const sent = (await Promise.all(users.map((cookies, n) => useBot(`paced-${n}`, cookies)))).flat();
report(sent, await upstream.arrivals());
for (const relay of relays) await relay.close();
await upstream.close();
await measureReservations();
stopRedis();

/** Signs users in one after the other, since unfinished sign-ins count as failed. */
async function signIn(count: number): Promise<string[]> {
  const cookies: string[] = [];
  for (let n = 0; n < count; n++) cookies.push(await anyRelay().signIn());
  return cookies;
}

/** Sends the messages of one heavy user, who always has some waiting, and of light users, who send one now and then. */
async function useBot(bot: string, [heavy = '', ...light]: string[]): Promise<Sent[]> {
  const sent: Sent[] = [];
  let over = false;
  async function sendBursts() {
    // The light users of all bots do not begin at the same time.
    await sleep(Math.random() * LONGEST_PAUSE_MS);
    for (let burst = 0; burst < BURSTS; burst++) {
      const messages = Array.from({ length: BURST }, () => send(bot, heavy, true));
      sent.push(...(await Promise.all(messages)));
    }
    over = true;
  }
  async function sendOneByOne(cookie: string) {
    for (let n = 0; n < LIGHT_MESSAGES; n++) {
      await sleep(over ? 10 : Math.random() * LONGEST_PAUSE_MS);
      sent.push(await send(bot, cookie, false));
    }
  }
  await Promise.all([sendBursts(), ...light.map(sendOneByOne)]);
  return sent;
}

function anyRelay(): RelayProcess {
  return relays[Math.floor(Math.random() * relays.length)] as RelayProcess;
}

/** Sends one message to one of the instances. @throws Error if it is not answered with a stream */
function send(bot: string, cookie: string, heavy: boolean): Promise<Sent> {
  const sentAt = monotonic();
  return new Promise((resolve, reject) => {
    const outgoing = request({
      port: anyRelay().port,
      host: '127.0.0.1',
      path: `/generic/ns/bench/bot-provider/${bot}/message/sse`,
      method: 'POST',
      agent: false,
      headers: { 'Content-Type': 'application/json', Cookie: cookie },
    });
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      const firstByteAt = monotonic();
      if (response.statusCode !== 200) reject(new Error(`answered ${response.statusCode}`));
      response.on('error', reject).on('end', () => resolve({ bot, heavy, sentAt, firstByteAt }));
      response.resume();
    });
    outgoing.end(messageBody());
  });
}

function monotonic(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

function report(sent: readonly Sent[], arrivals: Readonly<Record<string, number[]>>): void {
  const times = Object.values(arrivals);
  const count = times.reduce((sum, { length }) => sum + length, 0);
  console.log(
    `${sent.length} messages sent, ${count} arrived, of ${BOTS * (1 + LIGHT_USERS)} users, ${INSTANCES} instances`,
  );
  const largest = Math.max(...times.map(largestInWindow));
  console.log(`largest count in any ${WINDOW_MS} ms of one bot: ${largest} (limit ${LIMIT})`);
  const spans = times.flatMap((one) => one.slice(LIMIT).map((at, i) => at - (one[i] as number)));
  console.log(`shortest time in which ${LIMIT + 1} arrived at one bot: ${Math.min(...spans).toFixed(1)} ms`);
  console.log(`budget used while anyone waited: ${(100 * shareUsed(sent, arrivals)).toFixed(1)} %`);
  for (const heavy of [false, true]) {
    const waits = sent
      .filter((one) => one.heavy === heavy)
      .map(({ sentAt, firstByteAt }) => firstByteAt - sentAt);
    const [p50, p99] = [quantile(waits, 0.5), quantile(waits, 0.99)].map(Math.round);
    console.log(`wait of a ${heavy ? 'heavy' : 'light'} user: p50 ${p50} ms, p99 ${p99} ms`);
  }
  if (largest > LIMIT) process.exitCode = 1;
}

function largestInWindow(times: readonly number[]): number {
  return Math.max(...times.map((from) => times.filter((at) => at >= from && at < from + WINDOW_MS).length));
}

/**
 * The share of the budget that was used while messages waited. A slot is free again one window after its last use. The
 * share is the window divided by the time between two uses, over all slots for which a message was waiting.
 */
function shareUsed(sent: readonly Sent[], arrivals: Readonly<Record<string, number[]>>): number {
  let slots = 0;
  let taken = 0;
  for (const [bot, times] of Object.entries(arrivals)) {
    const own = sent.filter((one) => one.bot === bot);
    for (const [n, usedAt] of times.slice(LIMIT).entries()) {
      const usedBefore = times[n] as number;
      const freeAt = usedBefore + WINDOW_MS;
      if (!own.some(({ sentAt, firstByteAt }) => sentAt <= freeAt && firstByteAt >= usedAt)) continue;
      slots++;
      taken += usedAt - usedBefore;
    }
  }
  return (slots * WINDOW_MS) / taken;
}

/** Measures one reservation at a time, for endpoints whose budget is used up as in a burst. */
async function measureReservations(): Promise<void> {
  const connection = openRedis({ url: secret(redis.url), logger: createLogger('silent') });
  await connection.subscribe('ready', () => {});
  const rate = { limit: LIMIT, windowMs: WINDOW_MS };
  for (const [name, budgets] of [
    ['memory', memoryBudgets(rate)],
    ['Redis', redisBudgets(connection, rate)],
  ] as const) {
    const micros: number[] = [];
    for (let n = 0; n < RESERVATIONS; n++) {
      const wish = { endpoint: `bench/${n % 100}`, holders: [`user-${n % 200}`], maxWaitMs: 2_000 };
      const before = performance.now();
      await budgets.reserve(wish);
      micros.push((performance.now() - before) * 1000);
    }
    const timed = micros.slice(RESERVATIONS / 10);
    console.log(
      `one reservation in ${name}: p50 ${quantile(timed, 0.5).toFixed(1)} µs, p99 ${quantile(timed, 0.99).toFixed(1)} µs`,
    );
  }
  connection.close();
}
