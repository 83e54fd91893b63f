import { afterAll, describe, expect, test } from '@jest/globals';
import { codeOf, DONE, range } from '../support/numbered-messages.ts';
import { STREAM_HEAD, startRawUpstream } from '../support/raw-upstream.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { MESSAGE, OTHER_USER, startRelay, type TestRelay, USER } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';
import { whileAwake } from '../support/while-awake.ts';

const WINDOW = 1500;
const SESSIONS = 20;
const MESSAGES = 100;
/** A guard against hanging, for three tries on a busy machine. */
const PATIENCE_MS = 60_000;
const LIMIT = 2;
const PACING = { RATE_LIMIT: String(LIMIT), RATE_WINDOW_MS: String(WINDOW), RATE_MAX_WAIT_MS: '20000' };
const GUESTS = { AUTH_MODE: 'guest', TRUST_PROXY: '1' };

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  ending.abort();
  await Promise.all(closings.map((close) => close()));
  stopRedis();
});

/** The number in a message that reached the bot service, and when, in ms. */
interface Arrival {
  readonly n: number;
  readonly at: number;
}

/** A relay before a bot service that gives every message this answer. */
interface Started {
  readonly relay: TestRelay;
  readonly arrivals: readonly Arrival[];
}

async function start(environment: Record<string, string>, answer: string | Buffer = DONE): Promise<Started> {
  const arrivals: Arrival[] = [];
  const upstream = await startRawUpstream((socket, { body }) => {
    arrivals.push({ n: Number((JSON.parse(body.toString()) as { n: number }).n), at: performance.now() });
    socket.write(answer);
  });
  const relay = await startRelay(upstream.url, environment);
  closings.push(async () => {
    await relay.close();
    await upstream.close();
  });
  return { relay, arrivals };
}

/** Headers that identify the sender of a message. */
type Sender = Record<string, string> & { readonly Cookie: string };

const user = async (relay: TestRelay, who = USER): Promise<Sender> => ({ Cookie: await relay.signIn(who) });

async function guest({ url }: TestRelay, address: string): Promise<Sender> {
  const from = { 'X-Forwarded-For': address };
  const response = await fetch(`${url}/auth/guest`, { method: 'POST', headers: from });
  expect(response.status).toBe(200);
  return { ...from, Cookie: (response.headers.getSetCookie()[0] ?? '').split(';', 1)[0] as string };
}

/** Signs in this many, one after the other, so that not too many sign-ins run at once. */
async function oneByOne(count: number, signIn: (n: number) => Promise<Sender>): Promise<Sender[]> {
  const all: Sender[] = [];
  for (const n of range(count)) all.push(await signIn(n));
  return all;
}

/** Ends the streams that are still open at the end of the file. */
const ending = new AbortController();

interface Sent {
  readonly n?: number;
  readonly signal?: AbortSignal;
}

/** Keeps the answers, since an open stream is cancelled when its answer is garbage-collected. */
const held: Response[] = [];

async function send(relay: TestRelay, { Cookie, ...headers }: Sender, { n = 0, signal }: Sent = {}) {
  const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
  const answer = await relay.send(Cookie, { headers, body, signal: signal ?? ending.signal });
  held.push(answer);
  return answer;
}

/** Sends a message of `other` while `MESSAGES` of others are on their way; `answered` says how many have an answer. */
async function sendAmong(
  { relay, arrivals }: Started,
  other: Sender,
  answered: () => number,
): Promise<string | null> {
  // Each of the others is refused, or waits in the relay.
  await until(() => answered() + relay.open.count() >= MESSAGES);
  // Once all messages of a slot have arrived, the next slot is a window away.
  const nextSlot = LIMIT * (Math.floor(arrivals.length / LIMIT) + 1);
  await until(() => arrivals.length >= nextSlot);
  const { status, headers } = await send(relay, other, { n: MESSAGES });
  expect(status).toBe(200);
  return headers.get('x-request-id');
}

/** How many messages of `many` senders reach the service while the message of `other` waits in the relay. */
async function delayBy(started: Started, many: readonly Sender[], other: Sender): Promise<number> {
  const { relay, arrivals } = started;
  const leaving = new AbortController();
  const { signal } = leaving;
  let answered = 0;
  const all = range(MESSAGES).map((n) =>
    send(relay, many[n % many.length] as Sender, { n, signal }).then(
      () => void answered++,
      () => 'left',
    ),
  );
  const id = await sendAmong(started, other, () => answered).finally(() => leaving.abort());
  await Promise.all(all);
  const { at: startedAt } = arrivals.find(({ n }) => n === MESSAGES) as Arrival;
  const { slotWaitMs } = await relay.logLine(({ requestId }) => requestId === id);
  const arrivedAt = startedAt - Number(slotWaitMs);
  // Messages with the same slot time may arrive in any order.
  return arrivals.filter(({ at }) => at > arrivedAt && startedAt - at > WINDOW / 4).length;
}

/** Tests for both stores of budgets; `shared` selects the store. */
function contract(shared: () => Promise<Record<string, string>>): void {
  test.concurrent(
    'one user with 20 sessions and 100 messages delays another user by two slots at most',
    whileAwake(async () => {
      const started = await start({ ...PACING, ...(await shared()) });
      const { relay } = started;
      const many = await oneByOne(SESSIONS, () => user(relay));
      expect(await delayBy(started, many, await user(relay, OTHER_USER))).toBeLessThanOrEqual(2);
    }),
    PATIENCE_MS,
  );

  test.concurrent(
    '20 guests with 100 messages from one address delay a guest from another address by two slots at most',
    whileAwake(async () => {
      const started = await start({
        ...PACING,
        ...GUESTS,
        MAX_STREAMS_PER_ADDRESS: '1000',
        ...(await shared()),
      });
      const { relay } = started;
      const many = await oneByOne(SESSIONS, (n) => guest(relay, `2001:db8:0:1::${n + 1}`));
      expect(await delayBy(started, many, await guest(relay, '2001:db8:0:101::1'))).toBeLessThanOrEqual(2);
    }),
    PATIENCE_MS,
  );

  test.concurrent(
    'a guest from 20 addresses delays another guest by two slots at most, like one user',
    whileAwake(async () => {
      const started = await start({ ...PACING, ...GUESTS, ...(await shared()) });
      const { relay } = started;
      const one = await guest(relay, '192.0.2.1');
      const many = range(SESSIONS).map((n) => ({ ...one, 'X-Forwarded-For': `198.51.100.${n}` }));
      expect(await delayBy(started, many, await guest(relay, '203.0.113.1'))).toBeLessThanOrEqual(2);
    }),
    PATIENCE_MS,
  );

  test.concurrent('a user may have MAX_STREAMS_PER_USER open streams in all sessions together, and another user too', async () => {
    const { relay } = await start({ MAX_STREAMS_PER_USER: '2', ...(await shared()) }, STREAM_HEAD);
    const sessions = await oneByOne(3, () => user(relay));
    const answers = [];
    for (const one of sessions) answers.push(await send(relay, one));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 429]);
    expect(await codeOf(answers[2] as Response)).toBe('too_many_streams');
    expect((await send(relay, await user(relay, OTHER_USER))).status).toBe(200);
  });

  test.concurrent('each guest may have MAX_STREAMS_PER_USER open streams, and all from one address MAX_STREAMS_PER_ADDRESS', async () => {
    const caps = { MAX_STREAMS_PER_USER: '2', MAX_STREAMS_PER_ADDRESS: '3' };
    const { relay } = await start({ ...GUESTS, ...caps, ...(await shared()) }, STREAM_HEAD);
    const [ann, ben] = [await guest(relay, '2001:db8:0:1::1'), await guest(relay, '2001:db8:0:1::2')];
    const statuses = async (senders: Sender[]) => {
      const all = [];
      for (const sender of senders) all.push((await send(relay, sender)).status);
      return all;
    };
    expect(await statuses([ann, ann, ann, ben, ben])).toEqual([200, 200, 429, 200, 429]);
    // A message that was refused for its address took no place of the guest.
    const elsewhere = { ...ben, 'X-Forwarded-For': '2001:db8:0:101::1' };
    expect(await statuses([elsewhere, elsewhere])).toEqual([200, 429]);
    expect(await statuses([await guest(relay, '2001:db8:0:101::2')])).toEqual([200]);
  });
}

describe('with budgets in memory', () => {
  contract(async () => ({}));
});

describeWithRedis('with budgets in Redis', () => {
  contract(async () => ({ REDIS_URL: (await startRedis()).url }));

  test.concurrent('the keys in Redis contain neither user names nor session ids', async () => {
    const server = await startRedis();
    const environment = { MAX_STREAMS_PER_USER: '1', REDIS_URL: server.url };
    const { relay } = await start({ ...environment, RATE_LIMIT: '1', RATE_WINDOW_MS: '60000' }, STREAM_HEAD);
    const one = await user(relay);
    expect((await send(relay, one)).status).toBe(200);
    expect((await send(relay, one)).status).toBe(429);
    const keys = (await server.command('KEYS', 'bot-relay:streams:*')) as string[];
    expect(keys).toEqual([expect.stringMatching(/^bot-relay:streams:[\w-]{43}$/)]);
    const [ticket = ''] = (await server.command(
      'ZRANGE',
      'bot-relay:{budget:acme/helper}:slots',
      '0',
      '-1',
    )) as string[];
    expect(ticket).toMatch(/^\d{16} [\w-]{43} [\w-]{36}$/);
  });
});
