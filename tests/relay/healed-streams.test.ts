import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call } from '../harness/clients/call.ts';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  ANOTHER_INIT,
  answers,
  breaks,
  DELTA,
  DONE,
  INIT,
  KEPT,
  opens,
  type Reply,
  runEvent,
  SOON,
  silent,
  whole,
} from '../harness/service/broken-answers.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawRequest,
  STREAM_HEAD,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
let client: RawClient;
afterEach(async () => {
  client?.socket.destroy();
  await pair.close();
});

/** Sends a message to a service that answers with each of `answers` in turn, and later with the last. */
async function ask(answers: readonly Reply[], environment: Record<string, string> = {}, body = '{}') {
  pair = await startRelayAndUpstream(
    (socket, request) => {
      const answer = answers[Math.min(pair.upstream.requests.length, answers.length) - 1];
      answer?.(socket, request);
    },
    // A run that nobody reads is over at once.
    { METRICS_PORT: '9090', JOIN_GRACE_MS: '0', ...environment },
  );
  client = pair.ask({ body, headers: ['Connection: close'] });
}

async function ended() {
  await client.closed;
  const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
  return { ...dechunk(client.text()), line };
}

const resumptions = () => pair.relay.logs.filter(({ msg }) => msg === 'stream resumption');
const outcomes = () => resumptions().map(({ outcome, cause }) => [outcome, cause]);

describe('a stream that breaks after an id', () => {
  test('is resumed, and only the log and the metrics show it', async () => {
    await ask([breaks(SOON + INIT + KEPT + DELTA), answers('503 No'), whole(DONE)]);
    const { body, complete, line } = await ended();
    expect({ body, complete }).toEqual({ body: SOON + INIT + KEPT + DELTA + DONE, complete: true });
    expect(line).toMatchObject({ outcome: 'ok', status: 200, upstreamStatus: 200, resumptions: 2 });
    expect(line.bytes).toBe(body.length);
    const about = { requestId: line.requestId, bot: 'acme/helper', level: 'info' };
    expect(resumptions()).toMatchObject([
      { ...about, attempt: 1, outcome: 'unavailable', cause: 'status 503' },
      { ...about, attempt: 2, outcome: 'resumed' },
    ]);
    const metrics = await pair.relay.metricsText();
    expect(metrics).toContain('bot_relay_resumptions_total{outcome="resumed"} 1');
    expect(metrics).toContain('bot_relay_resumptions_total{outcome="unavailable"} 1');
    const [first, , third] = pair.upstream.requests as [RawRequest, RawRequest, RawRequest];
    expect(first.all('last-event-id')).toEqual([]);
    expect(third.all('last-event-id')).toEqual(['7']);
    expect(third.body).toEqual(first.body);
    expect(third.all('x-request-id')).toEqual(first.all('x-request-id'));
  });

  test('has heartbeats meanwhile, also after a CR', async () => {
    const goesOn: Reply = async (socket) => {
      await until(() => dechunk(client.text()).body.includes(':\n:\n'));
      socket.write(wholeStream(DONE));
    };
    await ask([breaks(`retry: 1\r\r${INIT}${KEPT}data: a\r\r`), goesOn], { HEARTBEAT_MS: '50' });
    const { body, complete } = await ended();
    expect(complete).toBe(true);
    expect(body).toMatch(/data: a\r\r(:\n){2,}data: \{"eventType":"asgard.run.done"/);
  });

  test('is resumed with the id of the client if it broke before it had one', async () => {
    await ask([breaks(SOON), whole('data: a\n\n')]);
    client.socket.destroy();
    client = pair.ask({ headers: ['Connection: close', 'Last-Event-ID: caf\u00e9'] });
    await client.closed;
    expect(dechunk(client.text()).complete).toBe(true);
    expect(pair.upstream.requests.at(-1)?.all('last-event-id')).toEqual([
      Buffer.from('caf\u00e9').toString('latin1'),
    ]);
  });

  test('ends with an error event if it cannot be resumed', async () => {
    await ask([breaks(SOON + INIT + KEPT), answers('204 No Content')]);
    const { body, complete, line } = await ended();
    expect(complete).toBe(true);
    expect(body).toMatch(/"code":"upstream_stream_broken".*"retryable":false/);
    expect(line).toMatchObject({ outcome: 'upstream_stream_broken', resumptions: 1 });
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('is tried five times if the service ends each resumption before the run has ended', async () => {
    await ask([breaks(SOON + INIT + KEPT + DELTA), whole(KEPT + DELTA)]);
    const { body } = await ended();
    expect(body.startsWith(`${SOON + INIT + KEPT + DELTA}event: error\n`)).toBe(true);
    expect(resumptions().map(({ outcome }) => outcome)).toEqual(Array(5).fill('ended_early'));
  });

  test('is not resumed if its body is large', async () => {
    const body = JSON.stringify({ text: 'x'.repeat(65_536) });
    await ask([breaks(SOON + INIT + KEPT), whole(DONE)], {}, body);
    expect((await ended()).line).toMatchObject({ outcome: 'upstream_stream_broken' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('is complete after the end of its run, whatever happens then', async () => {
    await ask([breaks(SOON + INIT + KEPT + DONE + DELTA), whole(DONE)]);
    const { body, complete, line } = await ended();
    expect({ body, complete }).toEqual({ body: SOON + INIT + KEPT + DONE + DELTA, complete: true });
    expect(line).toMatchObject({ outcome: 'ok', cause: expect.stringMatching(/./) });
    expect(pair.upstream.requests).toHaveLength(1);
  });
});

/** A stream with two events after its id. */
const BEGUN = SOON + INIT + KEPT + DELTA + DELTA;
/** Sends a message to a service that answers with each of `replies` in turn; its first stream breaks by a reset. */
async function askAndBreak(begun: string, replies: readonly Reply[], awaited = begun) {
  await ask([opens(begun), ...replies]);
  await client.waitFor(awaited);
  pair.upstream.sockets[0]?.resetAndDestroy();
}

describe('a resumption', () => {
  test('has not gone on with the stream before an event came', async () => {
    const repeats = `: hi\nretry: 2\n\n${DELTA}${DELTA}: ping\n`;
    await askAndBreak(BEGUN, [opens(repeats), whole(DONE)]);
    await client.waitFor(': ping');
    pair.upstream.sockets[1]?.resetAndDestroy();
    expect((await ended()).body).toBe(`${BEGUN}: hi\nretry: 2\n\n: ping\n${DONE}`);
    expect(outcomes()).toEqual([
      ['ended_early', 'ECONNRESET'],
      ['resumed', undefined],
    ]);
  });

  test('has gone on with the stream when an event that goes down in parts has ended', async () => {
    await askAndBreak(BEGUN, [opens(`data: ${'x'.repeat(70_000)}`)]);
    await client.waitFor('x'.repeat(60_000));
    expect(outcomes()).toEqual([]);
    pair.upstream.sockets[1]?.write(chunk('\n\n'));
    await until(() => outcomes().length > 0);
    expect(outcomes()).toEqual([['resumed', undefined]]);
  });

  test('is followed by another one if it ends before it has repeated all that went down', async () => {
    const [a, b, c] = ['data: a\n\n', 'data: b\n\n', 'data: c\n\n'];
    const begun = `retry: 1\nid: 7\ndata: kept\n\n${a}${b}`;
    await askAndBreak(begun, [whole(a), whole(a + b + c)]);
    expect(await ended()).toMatchObject({ body: begun + c, complete: true });
    expect(outcomes()).toEqual([
      ['ended_early', 'partial_tail'],
      ['resumed', undefined],
    ]);
  });

  test('is given up if there is no room to hold what it repeats', async () => {
    await ask([opens(BEGUN), opens(DELTA)]);
    await client.waitFor(BEGUN);
    const { held } = pair.relay;
    const room = held.maxBytes - held.bytes();
    expect(held.take(room)).toBe(true);
    pair.upstream.sockets[0]?.resetAndDestroy();
    const { body, complete } = await ended();
    held.release(room);
    expect([body.startsWith(`${BEGUN}event: error\n`), complete]).toEqual([true, true]);
    expect(outcomes()).toEqual([['given_up', 'no_room']]);
    expect(held.bytes()).toBe(0);
  });

  test.each([
    ['LF', '\n', 'resumed'],
    ['CR, to which an LF might still belong', '\r', 'ended_early'],
  ])(
    'of a stream without runs may end after all that went down; line ends are %s',
    async (_name, lf, outcome) => {
      const a = `data: a${lf}${lf}`;
      const begun = `retry: 1${lf}id: 7${lf}data: kept${lf}${lf}${a}`;
      await askAndBreak(begun, [whole(a)]);
      expect(await ended()).toMatchObject({ body: begun, complete: true });
      expect(outcomes()).toEqual([[outcome, undefined]]);
    },
  );

  test('that begins another run in front of a large event does not cut the stream', async () => {
    await ask([breaks(SOON + INIT + KEPT), breaks(`${ANOTHER_INIT}data: ${'x'.repeat(70_000)}`)]);
    const { body, complete } = await ended();
    expect([body.split('event: error\n')[0], complete]).toEqual([SOON + INIT + KEPT, true]);
  });

  test('that meets a new run is the last one of the bot: no message is kept for another', async () => {
    await askAndBreak(BEGUN, [opens(ANOTHER_INIT), opens(DELTA)]);
    await client.closed;
    expect(outcomes()).toEqual([['new_run', undefined]]);
    await until(() => pair.relay.held.bytes() === 0);
    await pair.ask().waitFor(DELTA);
    expect(pair.relay.held.bytes()).toBe(0);
  });
});

test('a stream that breaks inside a comment too large to hold is cut, not resumed', async () => {
  const begun = `${BEGUN}: ${'x'.repeat(70_000)}`;
  await askAndBreak(begun, [whole(DONE)], 'x'.repeat(60_000));
  expect(await ended()).toMatchObject({ body: begun, complete: false });
  expect(pair.upstream.requests).toHaveLength(1);
});

test("the next streams of a bot are healed after five failed resumptions, in their turns and with the user's place", async () => {
  const broken = breaks(SOON + INIT + KEPT);
  const failed = Array<Reply>(5).fill(answers('503 No'));
  const all = [broken, ...failed, broken, answers('204 No Content'), broken, whole(DONE)];
  await ask(all, { MAX_STREAMS_PER_USER: '1' });
  for (const ends of ['upstream_stream_broken', 'upstream_stream_broken', DONE]) {
    expect((await ended()).body).toContain(ends);
    if (ends !== DONE) client = pair.ask({ headers: ['Connection: close'] });
  }
  expect(pair.upstream.requests).toHaveLength(3 + 7);
});

test('a resumption that has shown its run keeps no other one waiting', async () => {
  // The time after which a pass is taken away does not come.
  const set = setTimeout;
  const never = (run: () => void, ms?: number) => set(run, ms === 2_000 ? 600_000 : ms);
  jest.spyOn(globalThis, 'setTimeout').mockImplementation(never as typeof setTimeout);
  await ask([breaks(SOON + INIT + KEPT), opens(KEPT), breaks(SOON + INIT + KEPT), opens(KEPT + DONE)]);
  await until(() => pair.upstream.requests.length === 2);
  const second = pair.ask({ body: '{"n":2}', headers: ['Connection: close'] });
  await second.waitFor('asgard.run.done');
  second.socket.destroy();
});

describe('a service that begins a new run where one is resumed', () => {
  test('is aborted, and no stream of this bot is resumed any more', async () => {
    await ask([breaks(SOON + INIT + KEPT), opens(ANOTHER_INIT)]);
    const { body, complete, line } = await ended();
    expect(complete).toBe(true);
    expect(body).not.toContain('another');
    expect(line).toMatchObject({ outcome: 'upstream_stream_broken', cause: 'new_run' });
    expect(resumptions()).toMatchObject([{ level: 'error', outcome: 'new_run' }]);
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    client = pair.ask({ headers: ['Connection: close'] });
    await until(() => pair.upstream.requests.length === 3);
    pair.upstream.sockets.at(-1)?.end(`${chunk(KEPT)}fff`);
    await client.closed;
    expect(pair.upstream.requests).toHaveLength(3);
  });
});

describe('a stream that ends cleanly', () => {
  test.each([
    ['without the end of its run', INIT + DELTA, INIT + DELTA],
    ['inside an event of its run', `${INIT}data: ha`, INIT],
  ])('%s has broken', async (_how, sent, down) => {
    await ask([whole(sent)]);
    const { body, complete, line } = await ended();
    expect(body.split('event: error\n')[0]).toBe(down);
    expect([complete, line.outcome, line.cause]).toEqual([true, 'upstream_stream_broken', 'no_end_event']);
  });

  test.each([
    ['in a run', INIT + DELTA, 'on', false],
    ['in a run, with END_EVENTS=off', INIT + DELTA, 'off', 'no_end_event'],
    ['inside an event of a run, with END_EVENTS=off', `${INIT}data: ha`, 'off', 'held'],
    ['inside an event of no run', 'data: a\n\ndata: ha', 'on', 'held'],
    ['inside an event of no run that is too large to hold', `data: ${'a'.repeat(70_000)}`, 'on', 'held'],
    ['inside a comment of no run', 'data: a\n\n: ha', 'on', undefined],
  ])('%s is taken as it came, unless that is a break', async (_where, sent, endEvents, counted) => {
    await ask([whole(sent)], { END_EVENTS: endEvents });
    const { body, complete, line } = await ended();
    expect(complete).toBe(true);
    if (counted === false) expect(line.outcome).toBe('upstream_stream_broken');
    else expect([body, line.outcome]).toEqual([sent, 'ok']);
    const metrics = await pair.relay.metricsText();
    for (const how of ['held', 'no_end_event'])
      expect(metrics).toMatch(
        new RegExp(`^bot_relay_\\w+\\{\\w+="${how}"\\} ${how === counted ? 1 : 0}$`, 'm'),
      );
  });
});

/** States of healing: what the service does with the resumption, and what shows that it has come so far. */
const STATES: [state: string, begun: string, resumes: Reply | undefined, requests: number][] = [
  ['in a pause', 'retry: 9000\n\n', undefined, 1],
  ['before the answer', SOON, silent, 2],
  ['before the first event', SOON, opens(': hi\n'), 2],
  ['while it repeats what went down', SOON, opens(KEPT), 2],
  ['after it has gone on', SOON, opens(runEvent('new')), 2],
];

/** After it, the relay has read what had been sent to it before. */
const oneRoundTrip = () => call(pair.relay.port, '/healthz');

describe.each(STATES)('healing %s', (_state, begun, resumes, requests) => {
  const start = async () => {
    await ask([breaks(begun + INIT + KEPT + DELTA), resumes ?? silent]);
    await until(() => pair.upstream.requests.length === requests);
    await client.waitFor(DELTA);
    await oneRoundTrip();
  };
  const resumed = () => pair.upstream.sockets[1];

  test('ends at once when the client leaves', async () => {
    await start();
    client.socket.destroy();
    await until(() => pair.relay.open.count() === 0 && resumed()?.destroyed !== false);
    expect(await pair.relay.metricsText()).toMatch(/^bot_relay_open_streams 0$/m);
    expect(pair.relay.logs.filter(({ msg }) => msg === 'fault')).toEqual([]);
    await oneRoundTrip();
    expect(pair.upstream.requests).toHaveLength(requests);
  });

  test.each([
    ['the session ends', 'session_ended'],
    ['the relay shuts down', 'answer_lost'],
  ])('ends at once and truthfully when %s', async (_why, code) => {
    await start();
    if (code === 'answer_lost') pair.relay.open.endAll(new Problem('draining', 'Shutting down.'));
    else await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
    const { body, complete, line } = await ended();
    expect([complete, line.outcome]).toEqual([true, code]);
    expect(body.split('event: error\n')).toEqual([
      expect.stringContaining(DELTA),
      expect.stringContaining(`"code":"${code}"`),
    ]);
    await until(() => resumed()?.destroyed !== false);
  });
});

test('the deadline is that of the whole message, with its healing', async () => {
  stopClock();
  await ask([opens(SOON + INIT + KEPT), opens(DELTA)], { MAX_EXECUTION_MS: '1500' });
  await client.waitFor(KEPT);
  pass(1_000);
  pair.upstream.sockets[0]?.destroy();
  await client.waitFor(DELTA);
  pass(499);
  pair.upstream.sockets[1]?.write(chunk('data: last\n\n'));
  await client.waitFor('data: last');
  pass(1);
  expect((await ended()).line).toMatchObject({ outcome: 'deadline_exceeded', resumptions: 1 });
});

/** Resolves when `socket` still has bytes to send and could send none for many turns of the event loop. */
async function stalls(socket: Socket): Promise<void> {
  let turns = 0;
  let left = 0;
  await until(() => {
    turns = left > 0 && socket.writableLength === left ? turns + 1 : 0;
    left = socket.writableLength;
    return turns === 20;
  });
}

test('a slow client gets everything of a stream that breaks and goes on while it does not read', async () => {
  const much = (n: number) => `id: ${n}\ndata: ${'x'.repeat(1000)}\n\n`.repeat(16 << 10);
  const answer = (n: number) =>
    Buffer.concat([Buffer.from(STREAM_HEAD), chunk(much(n)), ...(n === 2 ? [Buffer.from(LAST_CHUNK)] : [])]);
  await ask([(socket) => void socket.end(answer(1)), (socket) => void socket.write(answer(2))]);
  client.socket.pause();
  await until(() => pair.upstream.requests.length === 1);
  await stalls(pair.upstream.sockets[0] as Socket);
  // The relay reads no faster than the client does, so that it has not seen the break yet.
  expect(pair.upstream.requests).toHaveLength(1);
  client.socket.resume();
  await until(() => pair.upstream.requests.length === 2);
  client.socket.pause();
  await stalls(pair.upstream.sockets[1] as Socket);
  client.socket.resume();
  const { body, complete } = await ended();
  expect(complete).toBe(true);
  expect(body === much(1) + much(2)).toBe(true);
});
