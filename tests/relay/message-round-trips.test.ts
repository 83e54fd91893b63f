import { hash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { CLAIM, CONFIRM } from '../../src/runs/run-lua.ts';
import { call } from '../harness/clients/call.ts';
import { EVENTS, type First, messageBody, problemOf, statusOf } from '../harness/clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { CHANNEL, SUSPEND_PATH } from '../harness/clients/suspend.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../harness/relay/join-instances.ts';
import { BOT_PATH, type TestLimits, type TestRelay } from '../harness/relay/relay.ts';
import { plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

/** No slot is free again by itself while a test runs. */
const BUDGET = { RATE_LIMIT: '500', RATE_WINDOW_MS: '3600000', RATE_MAX_WAIT_MS: '1000' };
const SLOTS = 'bot-relay:{budget:acme/helper}:slots';

let all: JoinInstances;
/** The cookie of the session with which a test sends its message. */
let cookie: string;
let messages = 0;
/** How often instance 0 has heard that sessions have ended. */
let heard = 0;

/** Two instances before a service that answers each message as a whole. */
async function start(environment: Record<string, string> = {}, limits: TestLimits = {}): Promise<void> {
  const answer: First = ({ requestLine }, socket) => {
    const isMessage = requestLine.includes('/message/sse');
    socket.write(isMessage ? wholeStream(...EVENTS) : plainAnswer('204 No Content', []));
    return undefined;
  };
  all = await startJoinInstances(2, { ...BUDGET, ...environment }, answer, limits);
  cookie = all.cookie;
  // The listener of the instance itself was added before this one, so it is called first.
  relayAt(0).parts.sessions.listen({ removed: () => void heard++, missed() {} });
  // From now on Redis has loaded the scripts, and instance 0 knows its bot's connection.
  for (let n = 0; n < 2; n++) await sayNew().closed;
  await nothingHeld();
}

/** Resolves once nothing is held for a message but so many places, of which Redis could not be told. */
async function nothingHeld(places = 0): Promise<void> {
  await runsEnded(all.redis);
  await until(async () => (await placesTaken()) <= places);
  await relayAt(0).untilOpen(0);
}

const relayAt = (at: number) => all.relays[at] as TestRelay;
const wire = () => all.wires[0] as FaultProxy;
const idOf = (n: number) => ({ customMessageId: `message-number-${n}` });
function say(at: number, as: string, changes: object): RawClient {
  const body = messageBody(changes);
  return rawClient(relayAt(at).port, rawMessage({ cookie: as, body, headers: ['Connection: close'] }));
}
const sayNew = (changes: object = {}) => say(0, cookie, { ...idOf(++messages), ...changes });
const post = (at: number, path: string) =>
  call(relayAt(at).port, path, { method: 'POST', headers: { Cookie: cookie } });
const slotsTaken = async () => Number(await all.redis.command('ZCARD', SLOTS));
async function placesTaken(): Promise<number> {
  const keys = (await all.redis.command('KEYS', 'bot-relay:streams:*')) as string[];
  const counts = await Promise.all(keys.map((key) => all.redis.command('ZCARD', key)));
  return counts.map(Number).reduce((sum, count) => sum + count, 0);
}

/** Something that ends the message while it waits, and what its client gets; nothing if it has left. */
interface Interruption {
  readonly what: string;
  readonly act: (client: RawClient) => unknown;
  readonly code: RegExp | undefined;
}

const lose = () => wire().cut();
const SIGNED_OUT = /^(unauthenticated|session_ended)$/;
const INTERRUPTIONS: readonly Interruption[] = [
  {
    what: 'a logout at another instance',
    async act() {
      const before = heard;
      await post(1, '/auth/logout');
      await until(() => heard > before);
    },
    code: SIGNED_OUT,
  },
  {
    what: 'its client, which leaves,',
    async act({ socket }) {
      socket.destroy();
      // Before the instance answers this, it knows that the client has left.
      await call(relayAt(0).port, '/healthz');
    },
    code: undefined,
  },
];
/** Nobody tells of it, so that only the first two round trips can find it. */
const LOST_SESSION: Interruption = {
  what: 'the end of its session in Redis',
  async act() {
    const names = (await all.redis.command('KEYS', 'bot-relay:session:*')) as string[];
    await all.redis.command('DEL', ...names);
  },
  code: SIGNED_OUT,
};

const PLACE = 'bot-relay:streams';
const RESERVE = '\r\nreserve\r\n';
/** Redis is asked for a script by its hash. */
const hashOf = (script: string) => hash('sha1', script);
/** The round trips, by what only each of them has. */
const ROUND_TRIPS = [
  ['its session', 'bot-relay:limit:address'],
  ['the use of its session', 'bot-relay:user-sessions'],
  ['its name', hashOf(CLAIM)],
  ['its place', PLACE],
  ['its slot', RESERVE],
  ['its confirmation', hashOf(CONFIRM)],
] as const;
const casesOf = (
  interruptions: readonly Interruption[],
  trips: readonly (typeof ROUND_TRIPS)[number][] = ROUND_TRIPS,
) => trips.flatMap(([trip, text]) => interruptions.map((interruption) => ({ trip, text, ...interruption })));
/** After a loss of Redis, no slot is given for a while. So the case that needs a slot is the first one. */
const LOSSES = casesOf(
  [{ what: 'the loss of Redis', act: lose, code: /^session_store_unavailable$/ }],
  [...ROUND_TRIPS].reverse(),
);

type Case = ReturnType<typeof casesOf>[number];

/** A message is interrupted while Redis is asked for something: it is not sent, and can be sent again elsewhere. */
async function endsAndLeavesNothing({ text, act, code }: Case): Promise<void> {
  cookie = await relayAt(0).signIn();
  const [slots, places] = [await slotsTaken(), await placesTaken()];
  const requests = all.upstream.requests.length;
  const hold = wire().hold('client', text);
  const client = sayNew();
  const problem = code && problemOf(client);
  await hold.begun;
  await act(client);
  hold.release();
  await client.closed;
  wire().mend();
  if (code) expect((await problem)?.code).toMatch(code);
  await nothingHeld(act === lose ? places + 1 : places);
  expect(all.upstream.requests).toHaveLength(requests);
  // A slot that was granted to a client that had just left passes unused.
  if (![PLACE, RESERVE, hashOf(CONFIRM)].includes(text))
    await until(async () => (await slotsTaken()) === slots);
  // The same message with a new session at the other instance must be sent.
  const next = say(1, await relayAt(1).signIn(), idOf(messages));
  await next.closed;
  expect(statusOf(next)).toBe(200);
  expect(all.upstream.requests).toHaveLength(requests + 1);
  await until(async () => (await relayAt(0).parts.redis?.answers()) === true);
}

describeWithRedis('a message at two instances', () => {
  beforeAll(() => start());
  afterAll(() => all.close());

  test.each([...casesOf(INTERRUPTIONS), ...casesOf([LOST_SESSION], ROUND_TRIPS.slice(0, 2))])(
    'is ended by $what before Redis is asked for $trip, and nothing of it is left',
    endsAndLeavesNothing,
  );

  test.each(ROUND_TRIPS)(
    'is ended by a logout after the answer of Redis about %s, and nothing of it is left',
    async (_what, text) => {
      cookie = await relayAt(0).signIn();
      const places = await placesTaken();
      const hold = wire().hold('server', text);
      const client = sayNew();
      await hold.begun;
      const loggedOut = post(0, '/auth/logout');
      await sleep(50);
      hold.release();
      expect((await loggedOut).status).toBe(204);
      // It may have left before, and have been answered.
      await client.closed;
      await nothingHeld(places);
    },
  );

  test('is dropped by a stop at another instance before Redis is asked for its place', async () => {
    cookie = await relayAt(0).signIn();
    const requests = all.upstream.requests.length;
    const hold = wire().hold('client', PLACE);
    const client = sayNew({ customChannelId: 'c1' });
    await hold.begun;
    await post(1, SUSPEND_PATH + CHANNEL);
    await relayAt(0).untilOpen(1);
    hold.release();
    await client.closed;
    expect(client.text()).toContain('"code":"stopped"');
    const sent = all.upstream.requests.slice(requests).map(({ requestLine }) => requestLine);
    expect(sent).not.toContainEqual(expect.stringContaining('/message/sse'));
  });

  test.each(LOSSES)(
    'is ended by $what before Redis is asked for $trip, and nothing of it is left',
    endsAndLeavesNothing,
  );

  test('keeps no place of which Redis could not be told for longer than its lease', async () => {
    for (const key of (await all.redis.command('KEYS', 'bot-relay:streams:*')) as string[]) {
      const leftMs = Number(await all.redis.command('PTTL', key));
      // -2 is that of a key that has just gone, and -1 that of one that stays.
      expect([key, leftMs !== -1 && leftMs <= 10_000]).toEqual([key, true]);
    }
  });
});

describeWithRedis(
  'a message, at an instance that learns only after a second whether another one reads it,',
  () => {
    beforeAll(() => start({}, { leases: { renewMs: 1, batchMs: 1_000 } }));
    afterAll(() => all.close());

    test.each(casesOf(INTERRUPTIONS, ROUND_TRIPS.slice(-1)))(
      'is ended by $what before Redis is asked for $trip, and nothing of it is left',
      endsAndLeavesNothing,
    );

    test('is sent for a reader at another instance if its own client leaves before its confirmation', async () => {
      const requests = all.upstream.requests.length;
      const hold = wire().hold('client', hashOf(CONFIRM));
      const client = sayNew();
      await hold.begun;
      const other = say(1, cookie, idOf(messages));
      await relayAt(1).untilOpen(1);
      client.socket.destroy();
      hold.release();
      await other.closed;
      expect(statusOf(other)).toBe(200);
      expect(all.upstream.requests).toHaveLength(requests + 1);
    });
  },
);

describeWithRedis('a message that its session’s limit refuses', () => {
  beforeAll(() => start({ CLIENT_LIMIT_PER_SESSION: '4' }));
  afterAll(() => all.close());

  test('keeps no place and no slot, and one of another origin is not counted for the session', async () => {
    const evil = { Cookie: cookie, Origin: 'https://evil.example', 'Sec-Fetch-Site': 'cross-site' };
    const headers = { ...evil, 'Content-Type': 'application/json' };
    for (let n = 0; n < 5; n++)
      expect((await call(relayAt(0).port, BOT_PATH, { method: 'POST', headers })).status).toBe(403);
    for (let n = 0; n < 2; n++) {
      const client = sayNew();
      await client.closed;
      expect(statusOf(client)).toBe(200);
    }
    const sent = wire().record();
    expect(await problemOf(sayNew())).toMatchObject({ code: 'too_many_attempts' });
    const takes = new RegExp(`extend|streams|reserve|${hashOf(CLAIM)}`);
    expect(sent.filter(({ by, text }) => by === 'client' && takes.test(text))).toEqual([]);
  });
});
