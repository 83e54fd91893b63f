import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import type { NOT_RESUMED } from '../../src/relay/message/break-causes.ts';
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
  stalls,
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
    { JOIN_GRACE_MS: '0', ...environment },
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
    expect(line).not.toHaveProperty('notResumed');
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
    const { held } = pair.relay.parts;
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

test('a service that begins a new run where one is resumed is aborted, and no stream of its bot is resumed any more', async () => {
  await ask([breaks(SOON + INIT + KEPT), opens(ANOTHER_INIT), opens(KEPT)]);
  const { body, complete, line } = await ended();
  expect(complete).toBe(true);
  expect(body).not.toContain('another');
  expect(line).toMatchObject({ outcome: 'upstream_stream_broken', cause: 'new_run' });
  expect(resumptions()).toMatchObject([{ level: 'error', outcome: 'new_run' }]);
  await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor(KEPT);
  // No message is kept for another sending.
  expect(pair.relay.parts.held.bytes()).toBe(0);
  pair.upstream.sockets.at(-1)?.destroy();
  await client.closed;
  expect(pair.upstream.requests).toHaveLength(3);
});

/** What the client gets: all that was sent, or what was whole; and what is counted. */
const CLEAN_ENDS: [
  where: string,
  sent: string,
  endEvents: string,
  broken: string | undefined,
  counted?: string,
][] = [
  ['without the end of its run', INIT + DELTA, 'on', INIT + DELTA],
  ['inside an event of its run', `${INIT}data: ha`, 'on', INIT],
  ['in a run, with END_EVENTS=off', INIT + DELTA, 'off', undefined, 'no_end_event'],
  ['inside an event of a run, with END_EVENTS=off', `${INIT}data: ha`, 'off', undefined, 'held'],
  ['inside an event of no run', 'data: a\n\ndata: ha', 'on', undefined, 'held'],
  ['inside a large event of no run', `data: ${'a'.repeat(70_000)}`, 'on', undefined, 'held'],
  ['inside a comment of no run', 'data: a\n\n: ha', 'on', undefined],
];

test.each(CLEAN_ENDS)('a stream that ends cleanly %s has broken, or is taken as it came', async (...row) => {
  const [, sent, endEvents, broken, counted] = row;
  await ask([whole(sent)], { END_EVENTS: endEvents });
  const { body, complete, line } = await ended();
  expect(complete).toBe(true);
  if (broken === undefined) expect([body, line.outcome]).toEqual([sent, 'ok']);
  else {
    expect(body.split('event: error\n')[0]).toBe(broken);
    expect(line).toMatchObject({ outcome: 'upstream_stream_broken', cause: 'no_end_event' });
  }
  const metrics = await pair.relay.metricsText();
  for (const how of ['held', 'no_end_event'])
    expect(metrics).toMatch(
      new RegExp(`^bot_relay_\\w+\\{\\w+="${how}"\\} ${how === counted ? 1 : 0}$`, 'm'),
    );
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
    await until(async () => (await pair.relay.openMessages()) === 0 && resumed()?.destroyed !== false);
    expect(await pair.relay.metricsText()).toMatch(/^bot_relay_open_streams 0$/m);
    expect(pair.relay.logs.filter(({ msg }) => msg === 'fault')).toEqual([]);
    await oneRoundTrip();
    expect(pair.upstream.requests).toHaveLength(requests);
  });

  test('ends at once and truthfully when the session ends', async () => {
    await start();
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
    const { body, complete, line } = await ended();
    expect([complete, line.outcome]).toEqual([true, 'session_ended']);
    expect(body.split('event: error\n')).toEqual([
      expect.stringContaining(DELTA),
      expect.stringContaining('"code":"session_ended"'),
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

describe('the log line of a stream', () => {
  let pair: RelayAndUpstream;
  afterEach(() => pair.close());

  interface Broken {
    /** What the service sends before the connection breaks. */
    readonly sent: string;
    readonly environment?: Record<string, string>;
    readonly body?: string;
    /** How it answers each resumption. */
    readonly resumed?: Reply;
  }

  async function start({ sent, environment = {}, resumed = answers('204 No Content') }: Broken) {
    pair = await startRelayAndUpstream((socket, request) => {
      if (request.all('last-event-id').length > 0) resumed(socket, request);
      else breaks(sent)(socket, request);
    }, environment);
  }

  /** The log line of a message whose stream breaks. */
  async function lineOf({ body = '{}' }: Broken) {
    const client = pair.ask({ body, headers: ['Connection: close'] });
    await client.closed;
    const [, requestId] = /^x-request-id: (.+)\r$/im.exec(client.text()) ?? [];
    return pair.relay.logLine((line) => line.msg === 'request' && line.requestId === requestId);
  }

  const CASES: [(typeof NOT_RESUMED)[number], string, Broken][] = [
    ['off', 'resuming is off', { sent: INIT + KEPT, environment: { RESUME_UPSTREAM: 'off' } }],
    ['large_body', 'its message is large', { sent: INIT + KEPT, body: `{"a":"${'x'.repeat(65_536)}"}` }],
    ['no_id', 'it had no id', { sent: INIT + DELTA }],
    ['bad_id', 'no header can carry its id', { sent: `${INIT}id: \u0001\n${KEPT.slice('id: 7\n'.length)}` }],
    ['unheld_event', 'a part of an event went down', { sent: `${INIT}${KEPT}data: ${'x'.repeat(300_000)}` }],
    ['too_many_events', 'too much came after its id', { sent: INIT + KEPT + DELTA.repeat(1_025) }],
    ['attempts_failed', 'the service has nothing to resume', { sent: INIT + KEPT }],
  ];

  describe('the log line of a stream that broke off', () => {
    test.each(CASES)('says %s if %s', async (why, _where, broken) => {
      await start(broken);
      const line = await lineOf(broken);
      expect(line).toMatchObject({ outcome: 'upstream_stream_broken', notResumed: why });
      expect(line.resumptions).toBe(why === 'attempts_failed' ? 1 : undefined);
    });

    test('says new_run if the service has run a message of the bot again, this one or one before', async () => {
      const broken = { sent: INIT + KEPT, resumed: breaks(ANOTHER_INIT) };
      await start(broken);
      expect(await lineOf(broken)).toMatchObject({ cause: 'new_run', notResumed: 'new_run', resumptions: 1 });
      const { cause, notResumed, resumptions } = await lineOf(broken);
      expect([cause, notResumed, resumptions]).toEqual(['ECONNRESET', 'new_run', undefined]);
    });

    test('says new_run if another message of the bot has met one during its pause', async () => {
      const [late, resumed] = [Promise.withResolvers<Socket>(), Promise.withResolvers<Socket>()];
      pair = await startRelayAndUpstream((socket, request) => {
        if (request.all('last-event-id').length > 0) return resumed.resolve(socket);
        if (String(request.body) === '{}') return breaks(SOON + INIT + KEPT)(socket, request);
        socket.write(`${STREAM_HEAD}fffff\r\nretry: 1000\n\n${INIT}${KEPT}`);
        late.resolve(socket);
      });
      const lateLine = lineOf({ sent: '', body: '{"late":true}' });
      const breaking = await late.promise;
      const line = lineOf({ sent: '' });
      const answering = await resumed.promise;
      // Both arrive together, so that the pause has no time to end between them.
      breaking.end();
      answering.end(`${STREAM_HEAD}fffff\r\n${ANOTHER_INIT}`);
      expect(await line).toMatchObject({ cause: 'new_run' });
      expect(await lateLine).toMatchObject({ cause: 'ECONNRESET', notResumed: 'new_run' });
      expect(pair.upstream.requests).toHaveLength(3);
    });
  });
});
