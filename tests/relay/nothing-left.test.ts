import { getEventListeners } from 'node:events';
import type { Socket } from 'node:net';
import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { TOO_LONG } from '../../src/relay/message/deadlines.ts';
import { call } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
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
    { MAX_STREAMS_PER_USER: '1', METRICS_PORT: '9090', JOIN_GRACE_MS: '0', ...environment },
  );
  pairs.push(pair);
  const { relay } = pair;
  const client = pair.ask({ body: BODY, headers: ['Connection: close'] });
  await until(() => relay.held.bytes() === held);
  await end({ ...pair, client, sockets });
  await client.closed;
  if (ending !== undefined) expect(dechunk(client.text()).body.slice(0, 10_000)).toContain(ending);
  await until(() => relay.held.bytes() === 0 && relay.runs.bytes() === 0);
  await until(() => relay.open.count() === 0);
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
  ['has reached its deadline', ({ relay }) => relay.open.endAll(TOO_LONG), code('deadline_exceeded')],
  [
    'ends with its session',
    ({ relay, cookie }) => call(relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } }),
    code('session_ended'),
  ],
  [
    'is ended by a shutdown',
    ({ relay }) => relay.open.endAll(new Problem('draining', 'Shutting down.')),
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
  'breaks and has nothing to resume': {
    ...{ resumption: plainAnswer('204 No Content', []), end: reset, ending: BROKEN },
  },
  'breaks and can be resumed by no attempt': {
    ...{ resumption: plainAnswer('503 No', []), end: reset, ending: BROKEN },
  },
  'breaks and meets a new run': { resumption: begins(ANOTHER_INIT + HALF), end: reset, ending: BROKEN },
  'is aborted by its client in a pause of its healing': {
    begun: `retry: 10000\n\n${BEGUN.slice(SOON.length)}${HALF}`,
    end: async (started) => {
      reset(started);
      await until(() => started.relay.held.bytes() === HELD - LEAST);
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
            await until(() => started.relay.held.bytes() === HELD_IN_HEAD);
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

  test('whose client left before the whole body had arrived', async () => {
    pair = await startRelayAndUpstream(() => {});
    const timers = watchTimers();
    const { client } = await unfinished();
    expect(timers(BODY_MS)).toEqual({ set: 1, left: 1 });
    client.socket.destroy();
    await until(() => timers(BODY_MS).left === 0);
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
    await until(() => pair.relay.open.count() === 0);
    for (const [ms, count] of Object.entries(set))
      expect(timers(Number(ms))).toEqual({ set: count, left: 0 });
  });

  test('and an open stream has one abort listener, even if the message was sent twice', async () => {
    const keys = { UPSTREAM_API_KEYS: `${CANARY.secondKey},${CANARY.key}` };
    pair = await startRelayAndUpstream((socket, { all }) => {
      socket.write(all('x-api-key')[0] === CANARY.key ? STREAM_HEAD : plainAnswer('401 No', []));
    }, keys);
    const add = jest.spyOn(pair.relay.open, 'add');
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    const { signal } = (add.mock.calls[0] as [AbortController, string])[0];
    const accepted = pair.upstream.sockets.at(-1) as Socket;
    accepted.write(chunk('data: a\n\n'));
    await client.waitFor('data: a');
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    accepted.write(LAST_CHUNK);
    await until(() => pair.relay.open.count() === 0);
    await until(() => getEventListeners(signal, 'abort').length === 0);
  });
});
