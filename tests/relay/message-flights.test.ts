import { readFileSync } from 'node:fs';
import { afterEach, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call } from '../support/call.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, EVENTS, messageBody, problemOf, statusOf, WHOLE } from '../support/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { RedisProxy } from '../support/redis-proxy.ts';
import { BOT_PATH, type TestRelay } from '../support/relay.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';
import { ROOT } from '../support/sources.ts';
import { CHANNEL, SUSPEND_PATH } from '../support/suspend.ts';

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
const wire = () => all.wires[0] as RedisProxy;
const idOf = (n: number) => ({ customMessageId: `message-number-${n}` });
const sayNew = () => all.say(0, idOf(++messages));
const slotsTaken = async () => Number(await all.redis.command('ZCARD', SLOTS));
async function placesTaken(): Promise<number> {
  const keys = (await all.redis.command('KEYS', 'bot-relay:streams:*')) as string[];
  const counts = await Promise.all(keys.map((key) => all.redis.command('ZCARD', key)));
  return counts.map(Number).reduce((sum, count) => sum + count, 0);
}

/** The scripts that are no more than a sign of life. */
const isOwn = (command: string) => !/^(PING|EVALSHA key-use)/.test(command);

/** The commands in what was sent at once: each with what its first key is of. */
function commandsIn(text: string): string[] {
  const found = text.matchAll(
    /\*\d+\r\n\$\d+\r\n([A-Z]+)\r\n(?:(?:\$\d+\r\n[0-9a-f]{40}\r\n\$1?\d\r\n\d\r\n)?\$\d+\r\nbot-relay:([^\r]*)\r\n)?/g,
  );
  return [...found].map(([, name = '', key = '']) => `${name} ${kindOf(key)}`).filter(isOwn);
}

const kindOf = (key: string) => key.replace(/^\{?(limit:\w+|[\w-]+).*$/, '$1');

/**
 * What instance 0 sends to Redis for one message, flight by flight: up to its slot, and after it. One that is delayed on a
 * busy machine may ask once more before it leaves.
 */
async function flightsOf(say: () => RawClient): Promise<[before: string[][], after: string[]]> {
  const sent = wire().record();
  const asked = all.upstream.nextRequest();
  const client = say();
  await asked;
  await client.closed;
  expect(statusOf(client)).toBe(200);
  await runsEnded(all.redis);
  await until(async () => (await placesTaken()) === 0);
  const slot = sent.findIndex(({ text }) => text.includes('\r\nreserve\r\n')) + 1;
  const flights = sent.map(({ by, text }) => (by === 'relay' ? commandsIn(text) : []));
  return [flights.slice(0, slot).filter(({ length }) => length > 0), flights.slice(slot).flat()];
}

/** Sends a message whose body comes when its head has been answered for in Redis. */
function sayLate(): RawClient {
  const body = messageBody(idOf(++messages));
  const text = rawMessage({ cookie: all.cookie, body, headers: ['Connection: close'] });
  const [head = '', rest = ''] = text.split(/(?<=\r\n\r\n)/);
  const client = rawClient(relayAt(0).port, head);
  void until(async () => (await placesTaken()) > 0).then(() => client.socket.write(rest));
  return client;
}

const FIRST = ['GET session', 'EVALSHA limit:session', 'EVALSHA limit:address'];
const SECOND = ['EVALSHA session', 'EVALSHA user-sessions', 'EVALSHA streams'];

/** The round trips and commands that the documentation tells of such a message. */
function documented(message: string): number[] {
  const text = readFileSync(`${ROOT}/docs/performance.md`, 'utf8');
  const [, trips, commands] = new RegExp(`^\\| ${message} \\| (\\d+) \\| (\\d+) \\|$`, 'm').exec(text) ?? [];
  return [Number(trips), Number(commands)];
}

describeWithRedis('the flights of a message to Redis', () => {
  test('are two before it leaves, if its body came with its head', async () => {
    await start();
    const [before, after] = await flightsOf(sayNew);
    expect(before).toEqual([FIRST, [...SECOND, 'EVALSHA runs', 'EVALSHA budget']]);
    expect(documented('whose body came with its head')).toEqual([before.length, before.flat().length]);
    expect(after.filter((command) => command === 'ZREM streams')).toHaveLength(1);
  });

  test('are three before it leaves, if its body came later', async () => {
    await start();
    const [before] = await flightsOf(sayLate);
    expect(before).toEqual([FIRST, SECOND, ['EVALSHA runs', 'EVALSHA budget']]);
    expect(documented('whose body came later')).toEqual([before.length, before.flat().length]);
  });

  test('are as many with JOIN=off, and one after it', async () => {
    await start({ JOIN: 'off' });
    const [before, after] = await flightsOf(sayNew);
    expect(before).toEqual([FIRST, [...SECOND, 'EVALSHA budget']]);
    expect(after.filter((command) => command === 'ZREM streams')).toHaveLength(1);
    const [late] = await flightsOf(sayLate);
    expect(late).toEqual([FIRST, SECOND, ['EVALSHA budget']]);
    const of = 'with `JOIN=off`, whose body came';
    expect(documented(`${of} with its head`)).toEqual([before.length, before.flat().length]);
    expect(documented(`${of} later`)).toEqual([late.length, late.flat().length]);
  });

  test('of an ordinary operation are two before its slot', async () => {
    await start();
    const sent = wire().record();
    const suspended = await call(relayAt(0).port, SUSPEND_PATH + CHANNEL, {
      method: 'POST',
      headers: { Cookie: all.cookie },
    });
    expect(suspended.status).toBeLessThan(300);
    const flights = sent.map(({ by, text }) => (by === 'relay' ? commandsIn(text) : []));
    expect(flights.filter(({ length }) => length > 0).slice(0, 2)).toEqual([FIRST, ['ZSCORE user-sessions']]);
  });
});

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
/** Nobody tells of it, so that only the first two flights can find it. */
const LOST_SESSION: Interruption = {
  what: 'the end of its session in Redis',
  act: async () => all.redis.command('DEL', ...(await sessionNames())),
  code: SIGNED_OUT,
};

/** The flights, by what only each of them has. */
const FLIGHTS = [
  ['the first flight', 'bot-relay:limit:address', sayNew, [...INTERRUPTIONS, LOST_SESSION]],
  ['the second flight', 'bot-relay:user-sessions', sayNew, [...INTERRUPTIONS, LOST_SESSION]],
  ['the flight of its claim', '\r\nclaims\r\n', sayLate, INTERRUPTIONS],
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

/** Holds the message back before a flight, while `act` does something; returns its client. */
async function heldWhile(
  [, text, say]: (typeof FLIGHTS)[number],
  act: (client: RawClient) => Promise<unknown>,
): Promise<void> {
  await start();
  const slots = await slotsTaken();
  const requests = all.upstream.requests.length;
  const hold = wire().hold('relay', text);
  const client = say();
  const id = messages;
  await hold.begun;
  await act(client);
  hold.release();
  await client.closed;
  wire().mend();
  await runsEnded(all.redis);
  expect(all.upstream.requests).toHaveLength(requests);
  await until(async () => (await placesTaken()) === 0);
  await until(async () => (await slotsTaken()) === slots);
  await expectSent(idOf(id));
}

describeWithRedis.each(FLIGHTS)('before %s', (...flight) => {
  const [, , , interruptions] = flight;

  test.each(interruptions)('$what ends a message, and leaves nothing of it', async ({ act, code }) => {
    let problem: Promise<Record<string, unknown>> | undefined;
    await heldWhile(flight, async (client) => {
      problem = problemOf(client);
      await act();
    });
    expect((await problem)?.code).toMatch(code);
  });

  test('a client that leaves ends its message, and leaves nothing of it', async () => {
    await heldWhile(flight, async (client) => {
      client.socket.destroy();
      // Not as long as the deadline of a command.
      await sleep(100);
    });
  });
});

describeWithRedis('after the answers of a flight', () => {
  test.each(FLIGHTS)('%s, a logout at the same instance ends the message', async (...flight) => {
    const [, text, say] = flight;
    await start();
    const hold = wire().hold('redis', text);
    const client = say();
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
  });
});

describeWithRedis('a run whose message is refused by its session', () => {
  test.each([0, 1])('is sent by who has joined it at instance %i', async (at) => {
    await start();
    const refusing = Promise.withResolvers<'removed'>();
    jest.spyOn(relayAt(0).sessions, 'extend').mockReturnValueOnce(refusing.promise);
    const requests = all.upstream.requests.length;
    const first = sayNew();
    const runs = async () => (await all.redis.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    const live = async () =>
      (await Promise.all((await runs()).map((run) => all.redis.command('HGET', run, 'state')))).includes(
        'live',
      );
    await until(live);
    const cookie = await relayAt(at).signIn();
    const body = messageBody(idOf(messages));
    const joiner = rawClient(relayAt(at).port, rawMessage({ cookie, body, headers: ['Connection: close'] }));
    await relayAt(at).logLine(({ msg }) => msg === 'run joined');
    expect(all.upstream.requests).toHaveLength(requests);
    refusing.resolve('removed');
    expect(await problemOf(first)).toMatchObject({ code: 'unauthenticated' });
    expect(await bodyOf(joiner)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(requests + 1);
  });
});

describeWithRedis('a message whose body is refused', () => {
  test.each([
    ['session has ended', 'extend', 'unauthenticated'],
    ['session cannot be asked for', 'get', 'session_store_unavailable'],
  ] as const)('is refused for its session first, if the %s', async (_what, method, code) => {
    await start();
    const { sessions } = relayAt(0);
    if (method === 'extend')
      jest.spyOn(sessions, 'extend').mockImplementationOnce(async () => sleep(50).then(() => 'removed'));
    else jest.spyOn(sessions, 'get').mockRejectedValueOnce(new Problem(code, 'Away.'));
    const text = rawMessage({ cookie: all.cookie, body: 'no JSON', headers: ['Connection: close'] });
    expect(await problemOf(rawClient(relayAt(0).port, text))).toMatchObject({ code });
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
    expect(
      sent.filter(({ by, text }) => by === 'relay' && /extend|streams|reserve|claims/.test(text)),
    ).toEqual([]);
  });
});

const EVIL = {
  'Content-Type': 'application/json',
  Origin: 'https://evil.example',
  'Sec-Fetch-Site': 'cross-site',
};
