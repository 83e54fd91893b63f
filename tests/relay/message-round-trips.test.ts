import { hash } from 'node:crypto';
import { afterEach, expect, jest, test } from '@jest/globals';
import { CLAIM, CONFIRM } from '../../src/runs/run-lua.ts';
import { call } from '../harness/clients/call.ts';
import { EVENTS, messageBody, problemOf, statusOf } from '../harness/clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { CHANNEL, SUSPEND_PATH } from '../harness/clients/suspend.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../harness/relay/join-instances.ts';
import { BOT_PATH, type TestRelay } from '../harness/relay/relay.ts';
import { plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

jest.setTimeout(60_000);

/** No slot is free again by itself while a test runs. */
const BUDGET = { RATE_LIMIT: '20', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '1000' };
const SLOTS = 'bot-relay:{budget:acme/helper}:slots';

let all: JoinInstances;
let messages = 0;
afterEach(() => all.close());

/** Two instances before a service that answers each message as a whole. */
async function start(environment: Record<string, string> = {}): Promise<void> {
  all = await startJoinInstances(2, { ...BUDGET, ...environment }, ({ requestLine }, socket) => {
    const isMessage = requestLine.includes('/message/sse');
    socket.write(isMessage ? wholeStream(...EVENTS) : plainAnswer('204 No Content', []));
    return undefined;
  });
  // From now on Redis has loaded the scripts, and instance 0 knows its bot's connection.
  for (let n = 0; n < 2; n++) await sayNew().closed;
  await runsEnded(all.redis);
  await until(async () => (await placesTaken()) === 0);
}

const relayAt = (at: number) => all.relays[at] as TestRelay;
const wire = () => all.wires[0] as FaultProxy;
const idOf = (n: number) => ({ customMessageId: `message-number-${n}` });
const sayNew = () => all.say(0, idOf(++messages));
const slotsTaken = async () => Number(await all.redis.command('ZCARD', SLOTS));
async function placesTaken(): Promise<number> {
  const keys = (await all.redis.command('KEYS', 'bot-relay:streams:*')) as string[];
  const counts = await Promise.all(keys.map((key) => all.redis.command('ZCARD', key)));
  return counts.map(Number).reduce((sum, count) => sum + count, 0);
}

/** Something that ends the message while it waits, and what its client gets. */
interface Interruption {
  readonly what: string;
  readonly act: () => Promise<unknown>;
  readonly code: RegExp;
}

const post = (at: number, path: string) =>
  call(relayAt(at).port, path, { method: 'POST', headers: { Cookie: all.cookie } });
const sessionNames = async () => (await all.redis.command('KEYS', 'bot-relay:session:*')) as string[];
const SIGNED_OUT = /^(unauthenticated|session_ended)$/;
const INTERRUPTIONS: readonly Interruption[] = [
  { what: 'a logout at another instance', act: () => post(1, '/auth/logout'), code: SIGNED_OUT },
  { what: 'a logout-all at another instance', act: () => post(1, '/auth/logout-all'), code: SIGNED_OUT },
  {
    what: 'the loss of Redis',
    async act() {
      wire().cut();
    },
    code: /^session_store_unavailable$/,
  },
];
/** Nobody tells of it, so that only the first two round trips can find it. */
const LOST_SESSION: Interruption = {
  what: 'the end of its session in Redis',
  act: async () => all.redis.command('DEL', ...(await sessionNames())),
  code: SIGNED_OUT,
};

const PLACE = 'bot-relay:streams';
const RESERVE = '\r\nreserve\r\n';
/** Redis is asked for a script by its hash. */
const hashOf = (script: string) => hash('sha1', script);
/** The round trips, by what only each of them has. */
const ROUND_TRIPS = [
  ['its session', 'bot-relay:limit:address', [...INTERRUPTIONS, LOST_SESSION]],
  ['the use of its session', 'bot-relay:user-sessions', [...INTERRUPTIONS, LOST_SESSION]],
  ['its name', hashOf(CLAIM), INTERRUPTIONS],
  ['its place', PLACE, INTERRUPTIONS],
  ['its slot', RESERVE, INTERRUPTIONS],
  ['its confirmation', hashOf(CONFIRM), INTERRUPTIONS],
] as const;

/** Sends a message with a new session at instance 1, where it must be sent. */
async function expectSent(changes: object): Promise<void> {
  const requests = all.upstream.requests.length;
  const cookie = await relayAt(1).signIn();
  const text = rawMessage({ cookie, body: messageBody(changes), headers: ['Connection: close'] });
  const client = rawClient(relayAt(1).port, text);
  await client.closed;
  expect(statusOf(client)).toBe(200);
  expect(all.upstream.requests).toHaveLength(requests + 1);
}

/** Holds the message back before a round trip, while `act` does something. */
async function heldWhile(
  [, text]: (typeof ROUND_TRIPS)[number],
  act: (client: RawClient) => Promise<unknown>,
): Promise<void> {
  await start();
  const slots = await slotsTaken();
  const requests = all.upstream.requests.length;
  const hold = wire().hold('client', text);
  const client = sayNew();
  const id = messages;
  await hold.begun;
  await act(client);
  hold.release();
  await client.closed;
  wire().mend();
  await runsEnded(all.redis);
  expect(all.upstream.requests).toHaveLength(requests);
  await until(async () => (await placesTaken()) === 0);
  // A slot that was granted to a client that had just left passes unused.
  if (![PLACE, RESERVE, hashOf(CONFIRM)].includes(text))
    await until(async () => (await slotsTaken()) === slots);
  await expectSent(idOf(id));
}

describeWithRedis.each(ROUND_TRIPS)('before Redis is asked for %s', (...trip) => {
  const [, , interruptions] = trip;

  test.each(interruptions)('$what ends a message, and leaves nothing of it', async ({ act, code }) => {
    let problem: Promise<Record<string, unknown>> | undefined;
    await heldWhile(trip, async (client) => {
      problem = problemOf(client);
      await act();
    });
    expect((await problem)?.code).toMatch(code);
  });

  test('a client that leaves ends its message, and leaves nothing of it', async () => {
    await heldWhile(trip, async (client) => {
      client.socket.destroy();
      // Not as long as the deadline of a command.
      await sleep(100);
    });
  });
});

describeWithRedis('after an answer of Redis', () => {
  test.each(ROUND_TRIPS)(
    'about %s, a logout at the same instance ends the message',
    async (_what, text, _interruptions) => {
      await start();
      const hold = wire().hold('server', text);
      const client = sayNew();
      await hold.begun;
      const loggedOut = post(0, '/auth/logout');
      await sleep(50);
      hold.release();
      expect((await loggedOut).status).toBe(204);
      await client.closed;
      // It may have left before, and have been answered.
      await until(async () => (await placesTaken()) === 0);
      await runsEnded(all.redis);
      await until(() => relayAt(0).open.count() === 0);
    },
  );
});

describeWithRedis('before Redis is asked for its place', () => {
  test('a stop at another instance drops a message, which is not sent', async () => {
    await start();
    const requests = all.upstream.requests.length;
    const hold = wire().hold('client', PLACE);
    const client = all.say(0, { ...idOf(++messages), customChannelId: 'c1' });
    await hold.begun;
    await post(1, SUSPEND_PATH + CHANNEL);
    await until(async () => relayAt(0).open.count() === 1);
    hold.release();
    await client.closed;
    expect(client.text()).toContain('"code":"stopped"');
    expect(all.upstream.requests.slice(requests).map(({ requestLine }) => requestLine)).not.toContainEqual(
      expect.stringContaining('/message/sse'),
    );
  });
});

describeWithRedis('a message that its session’s limit refuses', () => {
  test('keeps no place and no slot, and one of another origin is not counted for the session', async () => {
    await start({ CLIENT_LIMIT_PER_SESSION: '4' });
    const evil = () =>
      call(relayAt(0).port, BOT_PATH, { method: 'POST', headers: { Cookie: all.cookie, ...EVIL } });
    for (let n = 0; n < 5; n++) expect((await evil()).status).toBe(403);
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

const EVIL = {
  'Content-Type': 'application/json',
  Origin: 'https://evil.example',
  'Sec-Fetch-Site': 'cross-site',
};
