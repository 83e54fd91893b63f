import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { codeOf, DONE, range } from '../support/paced.ts';
import { until } from '../support/pair.ts';
import { type RawUpstream, STREAM_HEAD, startRawUpstream } from '../support/raw-upstream.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { MESSAGE, OTHER_USER, startRelay, type TestRelay, USER } from '../support/relay.ts';

const WINDOW = 1000;
const SESSIONS = 50;
const MESSAGES = 500;
const PACING = { RATE_LIMIT: '2', RATE_WINDOW_MS: String(WINDOW), RATE_MAX_WAIT_MS: '20000' };
const GUESTS = { AUTH_MODE: 'guest', TRUST_PROXY: '1' };

let upstream: RawUpstream;
let answer: string | Buffer;
/** The number in each message that reached the bot service, and when, in ms. */
const arrivals: { n: number; at: number }[] = [];
const relays: TestRelay[] = [];
/** Ends what is still under way. */
let leaving: AbortController;

beforeEach(async () => {
  answer = DONE;
  leaving = new AbortController();
  upstream = await startRawUpstream((socket, { body }) => {
    arrivals.push({ n: Number((JSON.parse(body.toString()) as { n: number }).n), at: performance.now() });
    socket.write(answer);
  });
});
afterEach(async () => {
  leaving.abort();
  for (const relay of relays.splice(0)) await relay.close();
  await upstream.close();
  stopRedis();
  arrivals.length = 0;
});

async function start(environment: Record<string, string>): Promise<TestRelay> {
  const relay = await startRelay(upstream.url, environment);
  relays.push(relay);
  return relay;
}

/** Headers that tell whose a message is. */
type Sender = Record<string, string> & { readonly Cookie: string };

const user = async (relay: TestRelay, who = USER): Promise<Sender> => ({ Cookie: await relay.signIn(who) });

async function guest({ url }: TestRelay, address: string): Promise<Sender> {
  const from = { 'X-Forwarded-For': address };
  const response = await fetch(`${url}/auth/guest`, { method: 'POST', headers: from });
  expect(response.status).toBe(200);
  return { ...from, Cookie: (response.headers.getSetCookie()[0] ?? '').split(';', 1)[0] as string };
}

/** So many, one after the other: not as many sign-ins at once. */
async function oneByOne(count: number, signIn: (n: number) => Promise<Sender>): Promise<Sender[]> {
  const all: Sender[] = [];
  for (const n of range(count)) all.push(await signIn(n));
  return all;
}

function send(relay: TestRelay, { Cookie, ...headers }: Sender, n = 0): Promise<Response> {
  const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
  return relay.send(Cookie, { headers, body, signal: leaving.signal });
}

/** How many messages of `many` senders come to the service between the arrival of `other`'s at the relay and there. */
async function delayBy(relay: TestRelay, many: readonly Sender[], other: Sender): Promise<number> {
  const all = range(MESSAGES).map((n) => send(relay, many[n % many.length] as Sender, n).catch(() => 'left'));
  await until(() => arrivals.length >= 4);
  // In the middle between two windows.
  await sleep(WINDOW / 2);
  const before = arrivals.length;
  expect((await send(relay, other, MESSAGES)).status).toBe(200);
  const { at: startedAt } = arrivals.find(({ n }) => n === MESSAGES) as { at: number };
  leaving.abort();
  await Promise.all(all);
  // Messages whose slots come together race on the wire.
  return arrivals.filter(({ at }) => startedAt - at > WINDOW / 4).length - before;
}

/** What holds wherever the budgets are kept; `shared` says where. */
function contract(shared: () => Promise<Record<string, string>>): void {
  test('one user with 50 sessions and 500 messages delays another by two slots at most', async () => {
    const relay = await start({ ...PACING, ...(await shared()) });
    const many = await oneByOne(SESSIONS, () => user(relay));
    expect(await delayBy(relay, many, await user(relay, OTHER_USER))).toBeLessThanOrEqual(2);
  }, 60_000);

  test('one address with 50 guests and 500 messages delays a guest from another by two slots at most', async () => {
    const relay = await start({
      ...PACING,
      ...GUESTS,
      MAX_STREAMS_PER_ADDRESS: '1000',
      ...(await shared()),
    });
    const many = await oneByOne(SESSIONS, (n) => guest(relay, `2001:db8:0:1::${n + 1}`));
    expect(await delayBy(relay, many, await guest(relay, '2001:db8:0:101::1'))).toBeLessThanOrEqual(2);
  }, 60_000);

  test('a guest from 50 addresses has the two places of a user', async () => {
    const relay = await start({ ...PACING, ...GUESTS, ...(await shared()) });
    const one = await guest(relay, '192.0.2.1');
    const many = range(SESSIONS).map((n) => ({ ...one, 'X-Forwarded-For': `198.51.100.${n}` }));
    expect(await delayBy(relay, many, await guest(relay, '203.0.113.1'))).toBeLessThanOrEqual(2);
  }, 60_000);

  test('a user has MAX_STREAMS_PER_USER open streams in all sessions together, and another user as many', async () => {
    answer = STREAM_HEAD;
    const relay = await start({ MAX_STREAMS_PER_USER: '2', ...(await shared()) });
    const sessions = await oneByOne(3, () => user(relay));
    const answers = [];
    for (const one of sessions) answers.push(await send(relay, one));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 429]);
    expect(await codeOf(answers[2] as Response)).toBe('too_many_streams');
    expect((await send(relay, await user(relay, OTHER_USER))).status).toBe(200);
  });

  test('guests have their own, and those from one address MAX_STREAMS_PER_ADDRESS together', async () => {
    answer = STREAM_HEAD;
    const caps = { MAX_STREAMS_PER_USER: '2', MAX_STREAMS_PER_ADDRESS: '3' };
    const relay = await start({ ...GUESTS, ...caps, ...(await shared()) });
    const [ann, ben] = [await guest(relay, '2001:db8:0:1::1'), await guest(relay, '2001:db8:0:1::2')];
    const statuses = async (senders: Sender[]) => {
      const all = [];
      for (const sender of senders) all.push((await send(relay, sender)).status);
      return all;
    };
    expect(await statuses([ann, ann, ann, ben, ben])).toEqual([200, 200, 429, 200, 429]);
    // What the address refused is no place that the guest has taken.
    const elsewhere = { ...ben, 'X-Forwarded-For': '2001:db8:0:101::1' };
    expect(await statuses([elsewhere, elsewhere])).toEqual([200, 429]);
    expect(await statuses([await guest(relay, '2001:db8:0:101::2')])).toEqual([200]);
  });
}

describe('in memory', () => {
  contract(async () => ({}));
});

describeWithRedis('in Redis', () => {
  contract(async () => ({ REDIS_URL: (await startRedis()).url }));

  test('neither the name of a user nor of a session stands in what is counted', async () => {
    answer = STREAM_HEAD;
    const server = await startRedis();
    const environment = { MAX_STREAMS_PER_USER: '1', REDIS_URL: server.url };
    const relay = await start({ ...environment, RATE_LIMIT: '1', RATE_WINDOW_MS: '60000' });
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
