/**
 * Instances that ask Redis what relays ask, and carry nothing: for each message they count it twice, read and extend its
 * session, take a place for its stream, reserve a slot, and give the place back, in two round trips. Prints what they have seen as JSON.
 */
import { randomBytes } from 'node:crypto';
import type { LiveSession } from '../../src/authenticate/sessions/session.ts';
import { createLogger } from '../../src/logger.ts';
import { redisStores } from '../../src/process/redis-stores.ts';
import { secret } from '../../src/secret.ts';
import { openRedis } from '../../src/storage/redis.ts';
import { sleep } from '../support/wait.ts';
import type { Load, Seen } from './load.ts';

const TICK_MS = 5;
const SESSION_MS = 3_600_000;
const MAX_STREAMS = 1_000_000;
const RATE = { limit: 5, windowMs: 1_000, maxWaitMs: 2_000 };

const load = JSON.parse(process.argv[2] ?? '{}') as Load;
const seen = { messages: 0, granted: 0, failed: 0, reservationsMs: [] as number[] };

type Instance = Awaited<ReturnType<typeof openInstance>>;

const all = await Promise.all(Array.from({ length: load.instances }, openInstance));
const sessions = await beginSessions(all[0] as Instance);
const places = await takePlaces();
// Whoever measures waits for this line.
console.log('ready');
await sendAll();
for (const place of places) place?.release();
console.log(JSON.stringify(seen satisfies Seen));
process.exit();

async function openInstance() {
  const logger = createLogger('silent');
  const redis = openRedis({ url: secret(load.redisUrl), isCluster: load.isCluster, logger });
  await redis.ready(5_000);
  const options = {
    logger,
    rate: RATE,
    session: { secrets: [secret('scale-session-secret-51d2')], absoluteMs: 2 * SESSION_MS },
    runs: { keepMs: 0, rememberMs: 0, maxWaitMs: 0, maxExecutionMs: 0, maxBytes: 0, leases: {} },
  };
  const { sessions, budgets, streams, counts } = redisStores(redis, options);
  const [byAddress, bySession] = [counts('address'), counts('session')];
  for (const count of [byAddress, bySession]) count.init?.({ windowMs: 60_000 } as never);
  return { sessions, budgets, streams, byAddress, bySession };
}

/** Stores one session for each user. */
async function beginSessions({ sessions }: Instance): Promise<LiveSession[]> {
  const idleExpiresAt = Date.now() + SESSION_MS;
  const times = { startedAt: Date.now(), idleExpiresAt, absoluteExpiresAt: idleExpiresAt + SESSION_MS };
  const begun = Array.from({ length: load.users }, (_, n) => ({
    key: randomBytes(32).toString('base64url'),
    user: { id: userOf(n), name: userOf(n) },
    ...times,
  }));
  for (const { key, ...session } of begun) await sessions.set(key, session);
  return begun;
}

/** Takes a place for each open stream; the instances renew its lease while they send. */
async function takePlaces() {
  const places = [];
  for (let n = 0; n < load.streams; n++) {
    const { streams } = all[n % all.length] as Instance;
    places.push(await streams.acquire(`reader-${process.pid}-${n}`, MAX_STREAMS));
  }
  return places;
}

function userOf(n: number): string {
  return `user-${process.pid}-${n % load.users}`;
}

/** Sends at even times, however long the answers take. */
async function sendAll(): Promise<void> {
  const startedAt = performance.now();
  const under: Promise<void>[] = [];
  for (let ms = 0; ms < load.durationMs; ms = performance.now() - startedAt) {
    const due = Math.floor((ms / 1000) * load.messagesPerSecond);
    while (under.length < due) under.push(send(under.length).catch(() => void seen.failed++));
    await sleep(TICK_MS);
  }
  await Promise.all(under);
}

/** One message of one of the users to one of the bots, at one of the instances. */
async function send(n: number): Promise<void> {
  const { sessions: store, budgets, streams, byAddress, bySession } = all[n % all.length] as Instance;
  const session = sessions[n % sessions.length] as LiveSession;
  const { id: user } = session.user;
  await Promise.all([
    byAddress.increment(`10.0.${(n >> 8) % 256}.${n % 256}`),
    bySession.increment(session.key),
    store.get(session.key),
  ]);
  const endpoint = `scale/bot-${Math.floor(Math.random() * load.bots)}`;
  const askedAt = performance.now();
  const [{ state, waitMs, ticket }, place] = await Promise.all([
    budgets.reserve({ endpoint, holders: [user], maxWaitMs: RATE.maxWaitMs }),
    streams.acquire(user, MAX_STREAMS),
    store.extend(session, Date.now() + SESSION_MS),
  ]);
  seen.reservationsMs.push(performance.now() - askedAt);
  seen.messages++;
  if (state === 'granted') seen.granted++;
  if (state === 'granted' && waitMs > 0) {
    await sleep(waitMs);
    await budgets.start(endpoint, ticket);
  }
  place?.release();
}
