import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { type HealerOptions, healer, pauseMs } from '../../src/relay/message/healing.ts';
import { healingGate } from '../../src/relay/message/healing-gate.ts';
import { attemptResumption } from '../../src/relay/message/resumption-attempt.ts';
import type { ResumePoint } from '../../src/relay/message/stream-cursor.ts';
import { keyRing } from '../../src/relay/upstream/key-ring.ts';
import { messageKeys } from '../../src/relay/upstream/message-keys.ts';
import { createUpstream } from '../../src/relay/upstream/send.ts';
import { secret } from '../../src/secret.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';
import {
  plainAnswer,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const BODY = Buffer.from('{"text":"hi"}');
/** The first pause is 1 ms, and the fifth 16 ms. */
const RESUMPTION: ResumePoint = {
  ...{ lastEventId: '7', retryMs: 1, idBlock: undefined, tail: Buffer.alloc(0), runId: undefined },
};

let service: RawUpstream;
const services: RawUpstream[] = [];
/** What happened, in order; the outcome of an attempt as its number, outcome and cause. */
let events: string[];
let stop: AbortController;
beforeEach(() => {
  events = [];
  stop = new AbortController();
});
afterEach(() => Promise.all(services.splice(0).map(({ close }) => close())));

type Answer = (socket: Socket, request: RawRequest, n: number) => void;
const status = (line: string, ...headers: string[]): Answer => {
  return (socket) => void socket.write(plainAnswer(line, headers));
};
const stream: Answer = (socket) => void socket.write(STREAM_HEAD);

/** Heals with a bot service that answers with each of `answers` in turn, the last of them for ever. */
async function start(answers: readonly Answer[], options: Partial<HealerOptions> = {}) {
  service = await startRawUpstream((socket, request) => {
    const n = service.requests.length;
    (answers[n - 1] ?? answers.at(-1))?.(socket, request, n);
  });
  services.push(service);
  const ring = keyRing({ name: 'acme/helper', keys: [secret('first-key'), secret('second-key')] });
  const { send } = createUpstream(new URL(service.url));
  const headers = { 'content-length': String(BODY.length), 'last-event-id': 'of the client' };
  const gate = healingGate();
  const all: HealerOptions = {
    ...{ bot: 'acme/helper', gate, responseTimeoutMs: 5_000, random: () => 0, leastPauseMs: 0 },
    request: { path: '/m', headers, body: BODY },
    turn: async () => {
      events.push('turn');
      return {
        renewSlot: async () => {},
        sent: () => void events.push('sent'),
        takeExtraSlot: async () => void events.push('extra slot'),
        refused: async (askedMs) => void events.push(`refused ${askedMs}`),
      };
    },
    keys: () => messageKeys(ring, createLogger('silent', { write: () => {} }), 'id'),
    send: () => send,
    observe: (outcome, attempt, cause) => void events.push(`${attempt} ${outcome} ${cause}`),
    ...options,
  };
  const outcomes = () => events.filter((event) => /^\d/.test(event));
  return { healing: healer(all), options: all, gate, outcomes };
}

const resume = ({ healing }: Awaited<ReturnType<typeof start>>, resumption: Partial<ResumePoint> = {}) =>
  healing.resume({ ...RESUMPTION, ...resumption }, stop.signal);

describe('a resumption', () => {
  test('sends the same message with the last id instead of the `Last-Event-ID` of the client', async () => {
    const started = await start([stream]);
    // A header has one character for each byte: `é` has two.
    const answer = await resume(started, { lastEventId: 'caf\u00c3\u00a9 7' });
    expect(answer?.status).toBe(200);
    const [request] = service.requests as [RawRequest];
    expect(request.requestLine).toBe('POST /m HTTP/1.1');
    expect(request.body).toEqual(BODY);
    expect(request.all('last-event-id')).toEqual(['caf\u00c3\u00a9 7']);
    expect(request.all('x-api-key')).toEqual(['first-key']);
    // Only the first outcome counts.
    started.healing.recordOutcome('resumed');
    started.healing.recordOutcome('ended_early');
    expect(events).toEqual(['turn', 'sent', '1 resumed undefined']);
  });

  test.each([502, 503, 504])(
    'that is answered with %i is tried again, up to five times for one id',
    async (code) => {
      const started = await start([status(`${code} No`)]);
      expect(await resume(started)).toBeUndefined();
      const failed = [1, 2, 3, 4, 5].map((n) => `${n} unavailable status ${code}`);
      expect(started.outcomes()).toEqual(failed);
      expect(await resume(started)).toBeUndefined();
      expect(service.requests).toHaveLength(5);
      expect(await resume(started, { lastEventId: '8' })).toBeUndefined();
      expect(service.requests).toHaveLength(10);
    },
  );

  test('is tried fifty times in all', async () => {
    const started = await start([status('503 No')]);
    for (let id = 1; id <= 11; id++) await resume(started, { lastEventId: String(id), retryMs: 0 });
    expect(service.requests).toHaveLength(50);
  });

  test.each(['204 No Content', '404 Not Found', '500 Oops', '302 Found'])(
    'that is answered with %s is the last one',
    async (line) => {
      const started = await start([status(line)]);
      expect(await resume(started)).toBeUndefined();
      expect(started.outcomes()).toEqual([`1 over status ${Number.parseInt(line, 10)}`]);
    },
  );

  test('takes a new turn after a 429', async () => {
    const started = await start([status('429 Busy', 'Retry-After: 1'), stream]);
    expect(await resume(started)).toBeDefined();
    const first = ['turn', 'sent', 'refused 1000', '1 rate_limited status 429'];
    expect(events).toEqual([...first, 'turn', 'sent']);
  });

  test('waits as long as a 429 asks for', async () => {
    const waiting = await start([status('429 Busy', 'Retry-After: 3600'), stream]);
    const resuming = resume(waiting);
    await until(() => waiting.outcomes().length === 1);
    // Another one that waits as long as the first would without that.
    expect(await resume(await start([status('503 No'), stream]))).toBeDefined();
    stop.abort('left');
    await expect(resuming).rejects.toBe('left');
    expect(services[0]?.requests).toHaveLength(1);
  });

  test('is tried again if its connection breaks, or if no answer comes in time', async () => {
    stopClock();
    const started = await start([(socket) => socket.resetAndDestroy(), () => {}, stream]);
    const resuming = resume(started);
    await until(() => service.requests.length === 2);
    pass(5_000);
    expect(await resuming).toBeDefined();
    expect(started.outcomes()).toEqual(['1 unreachable ECONNRESET', '2 timeout upstream_timeout']);
    const [, silent] = service.sockets as [Socket, Socket];
    await until(() => silent.destroyed);
  });

  test('counts as a failed attempt if its slot cannot be had', async () => {
    const started = await start([stream], {
      turn: async () => {
        throw new TypeError('no Redis');
      },
    });
    expect(await resume(started)).toBeUndefined();
    expect(started.outcomes()).toEqual([1, 2, 3, 4, 5].map((n) => `${n} unreachable TypeError`));
  });

  test('keeps other streams of its bot waiting until its first event has come', async () => {
    const started = await start([stream]);
    const { gate, healing } = started;
    expect(await resume(started)).toBeDefined();
    let isIn = false;
    void gate.enter('acme/helper', stop.signal).then(() => {
      isIn = true;
    });
    await new Promise(setImmediate);
    expect(isIn).toBe(false);
    healing.firstEvent('same_run');
    await new Promise(setImmediate);
    expect(isIn).toBe(true);
  });
});

describe('healing ends at once, with the reason of its signal', () => {
  test('while another stream proves the first resumption', async () => {
    const gate = healingGate();
    const enter = gate.enter.bind(gate);
    await enter('acme/helper', new AbortController().signal);
    gate.enter = (...args) => {
      setImmediate(() => stop.abort('left'));
      return enter(...args);
    };
    await expect(resume(await start([stream], { gate }))).rejects.toBe('left');
    expect(events).toEqual([]);
  });

  test('while it waits for its slot', async () => {
    const started = await start([stream], {
      turn: (signal) =>
        new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
          setImmediate(() => stop.abort('left'));
        }),
    });
    await expect(resume(started)).rejects.toBe('left');
    await started.gate.enter('acme/helper', new AbortController().signal);
  });

  test('before the service answers', async () => {
    const started = await start([() => {}]);
    const resuming = resume(started);
    await until(() => service.requests.length === 1);
    stop.abort('left');
    await expect(resuming).rejects.toBe('left');
    expect(events).toEqual(['turn', 'sent', '1 given_up undefined']);
    await until(() => service.sockets[0]?.destroyed === true);
  });
});

test.each([
  ['double from one attempt to the next', { retryMs: 20, leastPauseMs: 0 }, [20, 40, 80, 160, 320, 640]],
  ['begin with a quarter of a second, up to four', {}, [250, 500, 1_000, 2_000, 4_000, 4_000]],
  ['begin with the `retry:` of the service', { retryMs: 3_000 }, [3_000, 4_000, 4_000, 4_000, 4_000, 4_000]],
  ['are never shorter than that', { retryMs: 6_000 }, Array(6).fill(6_000)],
  ['are up to half longer by chance', { random: () => 1 }, [375, 750, 1_500, 3_000, 6_000, 6_000]],
  ['are a tenth of a second at least, also after `retry: 0`', { retryMs: 0 }, Array(6).fill(100)],
  ['are ten seconds at most', { retryMs: 10_001 }, Array(6).fill(10_000)],
])('pauses %s', (_title, pause, expected) => {
  const about = { retryMs: undefined, random: () => 0, ...pause };
  expect([0, 1, 2, 3, 4, 5].map((attempts) => pauseMs({ ...about, attempts }))).toEqual(expected);
});

test.each([
  ['30', 30_000],
  ['3600', 60_000],
])('after a 429 with `Retry-After: %s` the next attempt waits %i ms', async (retryAfter, askedMs) => {
  const { options } = await start([status('429 Busy', `Retry-After: ${retryAfter}`)]);
  const attempted = await attemptResumption(options, { lastEventId: '7', onSent() {}, signal: stop.signal });
  expect(attempted).toMatchObject({ outcome: 'rate_limited', askedMs });
  await until(() => service.sockets[0]?.destroyed === true);
});

test('a stream that waits at the gate is not resumed once another one has met a new run', async () => {
  const started = await start([stream]);
  const entering = jest.spyOn(started.gate, 'enter');
  await started.gate.enter('acme/helper', stop.signal);
  const waits = resume(started, { retryMs: 0 });
  await until(() => entering.mock.calls.length === 2);
  started.gate.forbid('acme/helper');
  expect(await waits).toBeUndefined();
  expect(events).toEqual([]);
});

describe('an attempt that was delayed', () => {
  /** A sender that waits for the slot of a delayed request, and then does not answer if `isSilent`. */
  const delayed =
    (answered: HealerOptions['send'], isSilent: boolean): HealerOptions['send'] =>
    (fingerprint) =>
    (request, sending) =>
      new Promise((resolve, reject) => {
        sending.signal.addEventListener('abort', () => reject(sending.signal.reason));
        void sending.onDelayed().then(() => {
          if (!isSilent) resolve(answered(fingerprint)(request, sending));
        });
      });

  test.each([
    ['may wait longer for its slot than for the answer', false, 'unavailable'],
    ['has its whole time for the answer after that', true, 'timeout'],
  ])('%s', async (_title, isSilent, outcome) => {
    const { options } = await start([status('503 No')]);
    const turn: HealerOptions['turn'] = async (signal) => ({
      ...(await options.turn(signal)),
      renewSlot: () => new Promise((resolve) => setTimeout(resolve, 1_500)),
    });
    const send = delayed(options.send, isSilent);
    const attempted = await attemptResumption(
      { ...options, turn, send, responseTimeoutMs: 1_000 },
      { lastEventId: '7', onSent() {}, signal: stop.signal },
    );
    expect(attempted).toMatchObject({ outcome });
  });
});
