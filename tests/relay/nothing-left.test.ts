import { getEventListeners } from 'node:events';
import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { Problem } from '../../src/errors.ts';
import { deadlines, TOO_LONG } from '../../src/relay/message/deadlines.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { openMessages } from '../../src/relay/message/open-messages.ts';
import {
  type HealableMessage,
  type MessageHealingOptions,
  messageHealing,
} from '../../src/routes/message-healing.ts';
import { call } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { ANOTHER_INIT, breaks, DELTA, DONE, INIT, KEPT, SOON } from '../harness/service/broken-answers.ts';
import { chunk, LAST_CHUNK, plainAnswer, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

/** Two events after the id are remembered. */
const BEGUN = SOON + INIT + KEPT + DELTA + DELTA;
const HALF = 'data: half';
const BODY = JSON.stringify({ text: 'the message' });
const OTHER_BODY = JSON.stringify({ text: 'another message' });
/** A buffer of held bytes has this capacity at least. */
const LEAST = 512;
/** The message, its remembered events, and half an event. */
const HELD = BODY.length + 2 * LEAST;
/** The same, and what a resumption has dropped: one of the events again. */
const HELD_IN_HEAD = HELD + LEAST;

const pairs: RelayAndUpstream[] = [];
afterAll(() => Promise.all(pairs.map((pair) => pair.close())));

interface Started extends RelayAndUpstream {
  readonly client: RawClient;
  /** The bot service's ends of the stream: the first one, and those of its resumptions. */
  readonly sockets: Socket[];
}

interface End {
  /** What the service answers to a resumption. */
  readonly resumption?: string | Buffer;
  readonly environment?: Record<string, string>;
  /** What the service sends first. */
  readonly begun?: string;
  /** How many bytes are held before the end. */
  readonly held?: number;
  /** Ends the stream. */
  readonly end: (started: Started) => unknown;
  /** What the client gets after the events; undefined if it leaves. */
  readonly ending: string | undefined;
}

/** Carries a stream that holds as much as it can, ends it, and looks whether everything was given back. */
async function givesAllBack(how: End): Promise<void> {
  const { resumption, environment, begun = BEGUN + HALF, held = HELD, end, ending } = how;
  const sockets: Socket[] = [];
  const pair = await startRelayAndUpstream(
    (socket, { all, body }) => {
      if (String(body) === OTHER_BODY) return void socket.write(wholeStream(INIT, DONE));
      sockets.push(socket);
      const again = all('last-event-id').length > 0 && resumption;
      socket.write(again || begins(begun));
    },
    { MAX_STREAMS_PER_USER: '1', JOIN_GRACE_MS: '0', ...environment },
  );
  pairs.push(pair);
  const { relay } = pair;
  const client = pair.ask({ body: BODY, headers: ['Connection: close'] });
  await until(() => relay.parts.held.bytes() === held);
  await end({ ...pair, client, sockets });
  await client.closed;
  if (ending !== undefined) expect(dechunk(client.text()).body.slice(0, 10_000)).toContain(ending);
  await until(async () => relay.parts.held.bytes() === 0 && (await relay.runBytes()) === 0);
  await relay.untilOpen(0);
  expect(await relay.metricsText()).toMatch(/^bot_relay_open_streams 0$/m);
  // The user has one place only.
  const next = await relay.send(await relay.signIn(), { body: OTHER_BODY });
  expect([next.status, await next.text()]).toEqual([200, INIT + DONE]);
}

const begins = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);
const reset = ({ sockets }: Started) => sockets[0]?.resetAndDestroy();
const code = (name: string) => `"code":"${name}"`;
const BROKEN = code('upstream_stream_broken');

/** What can end a stream at any time, and what the client is told. */
const ENDED: [why: string, end: End['end'], ending: string | undefined][] = [
  ['is aborted by its client', ({ client }) => client.socket.destroy(), undefined],
  ['has reached its deadline', ({ relay }) => relay.parts.open.endAll(TOO_LONG), code('deadline_exceeded')],
  [
    'ends with its session',
    ({ relay, cookie }) => call(relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } }),
    code('session_ended'),
  ],
  [
    'is ended by a shutdown',
    ({ relay }) => relay.parts.open.endAll(new Problem('draining', 'Shutting down.')),
    code('answer_lost'),
  ],
];

const ENDS: Record<string, End> = {
  'ends well': {
    end: ({ sockets }) => sockets[0]?.write(Buffer.concat([chunk(`\n\n${DONE}`), Buffer.from(LAST_CHUNK)])),
    ending: `${HALF}\n\n${DONE}`,
  },
  'ends cleanly inside an event, which goes down as it came': {
    environment: { END_EVENTS: 'off' },
    end: ({ sockets }) => sockets[0]?.write(LAST_CHUNK),
    ending: HALF,
  },
  'breaks and is not resumed': {
    ...{ environment: { RESUME_UPSTREAM: 'off' }, held: LEAST, end: reset, ending: BROKEN },
  },
  'breaks inside an event that is too large to hold': {
    begun: `${BEGUN}data: ${'x'.repeat(70_000)}`,
    held: BODY.length,
    end: async (started) => {
      await started.client.waitFor('x'.repeat(60_000));
      reset(started);
    },
    ending: 'xxx',
  },
  'breaks and is healed': { resumption: wholeStream(DONE), end: reset, ending: DELTA + DONE },
  'breaks and can be resumed by no attempt': {
    ...{ resumption: plainAnswer('503 No', []), end: reset, ending: BROKEN },
  },
  'breaks and meets a new run': { resumption: begins(ANOTHER_INIT + HALF), end: reset, ending: BROKEN },
  'is aborted by its client in a pause of its healing': {
    begun: `retry: 10000\n\n${BEGUN.slice(SOON.length)}${HALF}`,
    end: async (started) => {
      reset(started);
      await until(() => started.relay.parts.held.bytes() === HELD - LEAST);
      started.client.socket.destroy();
    },
    ending: undefined,
  },
  ...Object.fromEntries(
    ENDED.flatMap(([why, end, ending]): [string, End][] => [
      [why, { end, ending }],
      [
        `${why} while its resumption repeats what went down`,
        {
          resumption: begins(KEPT + DELTA + HALF),
          end: async (started) => {
            reset(started);
            await until(() => started.relay.parts.held.bytes() === HELD_IN_HEAD);
            await end(started);
          },
          ending,
        },
      ],
    ]),
  ),
};

describe('all that was taken for a message is given back when its stream', () => {
  testSideBySide(Object.entries(ENDS).map(([title, end]) => [title, () => givesAllBack(end)]));
});

/** How long a body may take to arrive, and the last bytes of a stream; how long a resumption keeps others waiting. */
const BODY_MS = 30_000;
const LAST_BYTES_MS = 5_000;
const FIRST_EVENT_MS = 2_000;
/** A time that no other timer uses. The deadline of the execution is later, and has the same timer. */
const RESPONSE_TIMEOUT_MS = 87_654;
const TIMES = { MAX_EXECUTION_MS: '98765', UPSTREAM_RESPONSE_TIMEOUT_MS: String(RESPONSE_TIMEOUT_MS) };

/** Counts the timers of `ms` that are set from now on, and those that are not cleared. */
function watchTimers() {
  const set = jest.spyOn(globalThis, 'setTimeout');
  const clear = jest.spyOn(globalThis, 'clearTimeout');
  return (ms: number) => {
    const timers = set.mock.calls.flatMap(([, after], n) =>
      after === ms ? [set.mock.results[n]?.value] : [],
    );
    const cleared = new Set<unknown>(clear.mock.calls.map(([timer]) => timer));
    return { set: timers.length, left: timers.filter((timer) => !cleared.has(timer)).length };
  };
}

describe('no timer is left of a message', () => {
  let pair: RelayAndUpstream;
  afterEach(async () => {
    jest.restoreAllMocks();
    await pair.close();
  });
  /** Sends a message but for its last byte: a body that is here already has no timer. */
  async function unfinished() {
    const message = rawMessage({ cookie: pair.cookie, headers: ['Expect: 100-continue'] });
    const client = rawClient(pair.relay.port, message.slice(0, -1));
    await client.waitFor('100 Continue');
    return { client, finish: () => client.socket.write(message.slice(-1)) };
  }

  test.each([
    ['that was answered', `${STREAM_HEAD}${LAST_CHUNK}`, LAST_CHUNK],
    ['that was refused', plainAnswer('422 No', []), code('upstream_refused')],
    ['whose answer was not HTTP', 'no HTTP', code('upstream_bad_response')],
  ])('%s', async (_name, bytes, ending) => {
    pair = await startRelayAndUpstream((socket) => socket.end(bytes), TIMES);
    const timers = watchTimers();
    const { client, finish } = await unfinished();
    finish();
    await client.waitFor('HTTP/1.1 200 ');
    await client.waitFor(ending);
    await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    client.socket.destroy();
    for (const ms of [BODY_MS, RESPONSE_TIMEOUT_MS]) expect(timers(ms)).toEqual({ set: 1, left: 0 });
  });

  test.each([
    ['whose stream broke', breaks(''), { [RESPONSE_TIMEOUT_MS]: 1, [LAST_BYTES_MS]: 1, [FIRST_EVENT_MS]: 0 }],
    [
      'whose healing was given up',
      breaks(SOON + INIT + KEPT),
      { [RESPONSE_TIMEOUT_MS]: 2, [LAST_BYTES_MS]: 1, [FIRST_EVENT_MS]: 1 },
    ],
  ])('%s', async (_name, breaking, set) => {
    pair = await startRelayAndUpstream((socket, request) => {
      if (request.all('last-event-id').length === 0) breaking(socket, request);
      else socket.write(plainAnswer('204 No Content', []));
    }, TIMES);
    const send = async () => {
      expect(await (await pair.relay.send(pair.cookie)).text()).toContain('upstream_stream_broken');
    };
    // The first message is slower.
    await send();
    // A message that is delayed by a few ms starts its deadline once more: with a clock that stands still, none is.
    jest.spyOn(performance, 'now').mockReturnValue(performance.now());
    const timers = watchTimers();
    await send();
    await pair.relay.untilOpen(0);
    for (const [ms, count] of Object.entries(set))
      expect(timers(Number(ms))).toEqual({ set: count, left: 0 });
  });

  test('and an open stream has one abort listener, even if the message was sent twice', async () => {
    const keys = { UPSTREAM_API_KEYS: `${CANARY.secondKey},${CANARY.key}` };
    pair = await startRelayAndUpstream((socket, { all }) => {
      socket.write(all('x-api-key')[0] === CANARY.key ? STREAM_HEAD : plainAnswer('401 No', []));
    }, keys);
    const add = jest.spyOn(pair.relay.parts.open, 'add');
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    const { signal } = (add.mock.calls[0] as [AbortController, string])[0];
    const accepted = pair.upstream.sockets.at(-1) as Socket;
    accepted.write(chunk('data: a\n\n'));
    await client.waitFor('data: a');
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    accepted.write(LAST_CHUNK);
    await pair.relay.untilOpen(0);
    await until(() => getEventListeners(signal, 'abort').length === 0);
  });
});

describe('clients that leave', () => {
  const CLIENTS = 250;
  const AT_ONCE = 50;
  /** How long a whole answer takes, in ms. */
  const ANSWER_MS = 120;
  const LEAVING = ['destroy', 'resetAndDestroy', 'end'] as const;
  /** When each client leaves, and how; the same in every run. */
  const LEAVES = fc.sample(fc.tuple(fc.nat({ max: ANSWER_MS }), fc.constantFrom(...LEAVING)), {
    ...{ numRuns: CLIENTS, seed: 37 },
  });

  let messages = 0;
  let pair: RelayAndUpstream;
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await pair.close();
    stopRedis();
    redis = undefined;
  });

  /** Starts a bot service that answers in three parts, with a pause before each. */
  async function start(environment: Record<string, string> = {}): Promise<void> {
    pair = await startRelayAndUpstream(
      async (socket) => {
        for (const part of [STREAM_HEAD, chunk('data: 1\n\n'), LAST_CHUNK]) {
          await sleep(ANSWER_MS / 4);
          socket.write(part);
        }
      },
      { SHUTDOWN_GRACE_MS: '60000', ...environment },
    );
  }

  /** Sends a message and leaves after so many ms. */
  async function sendAndLeave([afterMs, leave]: (typeof LEAVES)[number]): Promise<RawClient> {
    // Each is a message of its own: the same bytes would join its run.
    const body = JSON.stringify({ text: `hi ${++messages}` });
    const client = rawClient(pair.relay.port, rawMessage({ cookie: pair.cookie, body }));
    await sleep(afterMs);
    client.socket[leave]();
    await client.closed;
    return client;
  }

  /** What the relay holds for messages, by name. */
  async function held(): Promise<Record<string, number>> {
    const text = await pair.relay.metricsText();
    const leases = ((await redis?.command('KEYS', 'bot-relay:streams:*')) as string[] | undefined) ?? [];
    return {
      openMessages: total(text, 'bot_relay_open_messages'),
      openStreams: total(text, 'bot_relay_open_streams'),
      leases: leases.length,
      runBytes: total(text, 'bot_relay_run_log_bytes'),
    };
  }

  async function expectNothingHeld(): Promise<void> {
    await until(async () => Object.values(await held()).every((count) => count === 0));
    // The grace period is a minute: with nothing open, closing does not take it.
    await pair.relay.close();
    pair.relay.close = async () => {};
  }

  /** Sends so many messages at a time that some wait for a slot. */
  async function leaveAtRandom(): Promise<void> {
    const first = pair.ask();
    await first.waitFor('data: 1');
    first.socket.destroy();
    for (let left = 0; left < CLIENTS; left += AT_ONCE)
      await Promise.all(LEAVES.slice(left, left + AT_ONCE).map(sendAndLeave));
    await expectNothingHeld();
  }

  /** The slots are for less than half of the messages: the other clients leave while theirs waits. */
  const PACED = { RATE_LIMIT: '100', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '60000' };

  test('clients that leave at random moments leave nothing behind', async () => {
    await start(PACED);
    await leaveAtRandom();
  });

  describeWithRedis('with Redis', () => {
    test('clients that leave at random moments leave nothing behind', async () => {
      redis = await startRedis();
      await start({ ...PACED, REDIS_URL: redis.url });
      await leaveAtRandom();
    });
  });
});

describe('what is open', () => {
  describe('the timers of a message', () => {
    beforeEach(() => {
      jest.useFakeTimers();
    });
    afterEach(() => {
      jest.useRealTimers();
    });
    const start = () => {
      const stop = new AbortController();
      const timers = deadlines(stop, { responseTimeoutMs: 100, maxExecutionMs: 1_000 });
      return { timers, reason: () => stop.signal.reason?.code as string | undefined };
    };

    test('start again each time it is sent', () => {
      const { timers, reason } = start();
      timers.start();
      jest.advanceTimersByTime(99);
      timers.start(500);
      expect(jest.getTimerCount()).toBe(1);
      jest.advanceTimersByTime(99);
      expect(reason()).toBeUndefined();
      jest.advanceTimersByTime(1);
      expect(reason()).toBe('upstream_timeout');
      timers.clear();
      expect(jest.getTimerCount()).toBe(0);
    });

    test('leave what is left of the execution when it is answered', () => {
      const { timers, reason } = start();
      timers.start(500);
      timers.answered();
      jest.advanceTimersByTime(499);
      expect(reason()).toBeUndefined();
      jest.advanceTimersByTime(1);
      expect(reason()).toBe('deadline_exceeded');
    });
  });

  test('kept messages take at most half of the bytes that may be held', () => {
    const held = heldBytes(1_000);
    const options: Partial<MessageHealingOptions> = { resume: true, held };
    const keep = messageHealing(options as MessageHealingOptions);
    const message: Partial<HealableMessage> = {
      bot: 'acme/helper',
      request: { path: '/m', headers: {}, body: Buffer.alloc(300) },
      locals: {} as HealableMessage['locals'],
    };
    const keepOne = () => keep(message as HealableMessage);
    const first = keepOne();
    expect(typeof first?.healer).toBe('function');
    expect(keepOne()?.healer).toBe('no_room');
    expect(held.bytes()).toBe(300);
    first?.release();
    expect(held.bytes()).toBe(0);
    // What streams hold counts, too.
    expect(held.take(800)).toBe(true);
    expect(keepOne()?.healer).toBe('no_room');
    held.release(800);
    expect(typeof keepOne()?.healer).toBe('function');
  });

  const DRAINING = new Problem('draining', 'Over.');

  test('endKinds ends what is of these kinds and nothing else, and also what is added later', () => {
    const open = openMessages();
    const [message, live, late] = [new AbortController(), new AbortController(), new AbortController()];
    open.add(message, 'a');
    open.add(live, 'a', 'live');
    open.endKinds(['live'], DRAINING);
    open.add(late, 'a', 'live');
    expect([live.signal.reason, late.signal.reason, message.signal.aborted]).toEqual([
      DRAINING,
      DRAINING,
      false,
    ]);
    open.endSession('b', DRAINING);
    expect(message.signal.aborted).toBe(false);
    open.endSession('a', DRAINING);
    expect(message.signal.aborted).toBe(true);
  });
});
