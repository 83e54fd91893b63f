import { afterAll, describe, expect, jest, test } from '@jest/globals';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { codeOf, DONE, range } from '../harness/relay/numbered-messages.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { STREAM_HEAD, startRawUpstream } from '../harness/service/raw-upstream.ts';

const GUESTS = { AUTH_MODE: 'guest', TRUST_PROXY: '1' };

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  ending.abort();
  await Promise.all(closings.map((close) => close()));
  stopRedis();
});

async function start(
  environment: Record<string, string>,
  answer: string | Buffer = DONE,
): Promise<TestRelay> {
  const upstream = await startRawUpstream((socket) => void socket.write(answer));
  const relay = await startRelay(upstream.url, environment);
  closings.push(async () => {
    await relay.close();
    await upstream.close();
  });
  return relay;
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

/** Keeps the answers, since an open stream is cancelled when its answer is garbage-collected. */
const held: Response[] = [];

let messages = 0;
async function send(relay: TestRelay, { Cookie, ...headers }: Sender) {
  // Each is a message of its own: the same bytes would join its run.
  const body = JSON.stringify({ customChannelId: 'c1', text: `${CANARY.text} ${++messages}` });
  const answer = await relay.send(Cookie, { headers, body, signal: ending.signal });
  held.push(answer);
  return answer;
}

/** The user and the address, if any, for whom each sender's message gets its slot. */
async function holdersOf(relay: TestRelay, senders: readonly Sender[]): Promise<string[][]> {
  const reserve = jest.spyOn(relay.budgets, 'reserve');
  for (const sender of senders) expect((await send(relay, sender)).status).toBe(200);
  return reserve.mock.calls.map(([{ holders }]) => [...holders]);
}

/** Tests for both stores of budgets; `shared` selects the store. */
function contract(shared: () => Promise<Record<string, string>>): void {
  test.concurrent('a user may have MAX_STREAMS_PER_USER open streams in all sessions together, and another user too', async () => {
    const relay = await start({ MAX_STREAMS_PER_USER: '2', ...(await shared()) }, STREAM_HEAD);
    const sessions = await oneByOne(3, () => user(relay));
    const answers = [];
    for (const one of sessions) answers.push(await send(relay, one));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 429]);
    expect(await codeOf(answers[2] as Response)).toBe('too_many_streams');
    expect((await send(relay, await user(relay, OTHER_USER))).status).toBe(200);
  });

  test.concurrent('each guest may have MAX_STREAMS_PER_USER open streams, and all from one address MAX_STREAMS_PER_ADDRESS', async () => {
    const caps = { MAX_STREAMS_PER_USER: '2', MAX_STREAMS_PER_ADDRESS: '3' };
    const relay = await start({ ...GUESTS, ...caps, ...(await shared()) }, STREAM_HEAD);
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

describe('slots are shared out', () => {
  test.concurrent('by user, whatever the session', async () => {
    const relay = await start({});
    const senders = [await user(relay), await user(relay), await user(relay, OTHER_USER)];
    const [one = [], again, other] = await holdersOf(relay, senders);
    expect(one).toHaveLength(1);
    expect(again).toEqual(one);
    expect(other).not.toEqual(one);
  });

  test.concurrent('by guest and by address, which is a /56 of IPv6', async () => {
    const relay = await start({ ...GUESTS });
    const [ann, ben] = [await guest(relay, '2001:db8:0:1::1'), await guest(relay, '2001:db8:0:1::2')];
    const [one = [], neighbour = [], moved = []] = await holdersOf(relay, [
      ann,
      ben,
      { ...ann, 'X-Forwarded-For': '2001:db8:0:101::1' },
    ]);
    expect(one).toHaveLength(2);
    expect([neighbour[0] === one[0], neighbour[1] === one[1]]).toEqual([false, true]);
    expect([moved[0] === one[0], moved[1] === one[1]]).toEqual([true, false]);
  });
});

describe('with budgets in memory', () => {
  contract(async () => ({}));
});

describeWithRedis('with budgets in Redis', () => {
  contract(async () => ({ REDIS_URL: (await startRedis()).url }));

  test.concurrent('the keys in Redis contain neither user names nor session ids', async () => {
    const server = await startRedis();
    const environment = { MAX_STREAMS_PER_USER: '1', REDIS_URL: server.url };
    const relay = await start({ ...environment, RATE_LIMIT: '1', RATE_WINDOW_MS: '60000' }, STREAM_HEAD);
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
