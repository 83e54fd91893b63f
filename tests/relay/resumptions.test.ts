import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import fc from 'fast-check';
import { createLogger } from '../../src/logger.ts';
import { type HealerOptions, healer, pauseMs } from '../../src/relay/message/healing.ts';
import { type GatePass, healingGate } from '../../src/relay/message/healing-gate.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import {
  dropHead,
  isDecided,
  type ResumedHead,
  resumedHead,
  takeHead,
} from '../../src/relay/message/resumed-head.ts';
import { attemptResumption } from '../../src/relay/message/resumption-attempt.ts';
import {
  forgetTail,
  noteSent,
  type ResumePoint,
  resumePointOf,
  streamCursor,
} from '../../src/relay/message/stream-cursor.ts';
import { dropRest, push, wholeEvents, wholePiece } from '../../src/relay/message/whole-events.ts';
import { keyRing } from '../../src/relay/upstream/key-ring.ts';
import { messageKeys } from '../../src/relay/upstream/message-keys.ts';
import { createUpstream } from '../../src/relay/upstream/send.ts';
import { secret } from '../../src/secret.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';
import { inPieces, splits } from '../harness/service/event-streams.ts';
import {
  plainAnswer,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

describe('healing', () => {
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
    test('keeps other streams of its bot waiting until its first event has come', async () => {
      const started = await start([stream]);
      expect(await resume(started)).toBeDefined();
      let isIn = false;
      void started.gate.enter('acme/helper', stop.signal).then(() => {
        isIn = true;
      });
      await new Promise(setImmediate);
      expect(isIn).toBe(false);
      started.healing.firstEvent('same_run');
      await until(() => isIn);
    });

    test('sends the same message with the last id, and not with the one of its client', async () => {
      const started = await start([stream]);
      // A header has one character for each byte: `é` has two.
      expect(await resume(started, { lastEventId: 'caf\u00c3\u00a9 7' })).toBeDefined();
      const [request] = service.requests as [RawRequest];
      expect(request.all('last-event-id')).toEqual(['caf\u00c3\u00a9 7']);
      expect(request.body).toEqual(BODY);
    });

    test('that is answered with 502, 503 or 504 is tried five times for one id, and fifty times in all', async () => {
      const codes = [502, 503, 504];
      const started = await start([...codes.map((code) => status(`${code} No`)), status('503 No')]);
      for (let id = 1; id <= 11; id++) {
        // Also if the stream goes on and breaks again without a new id.
        for (let breaks = 0; breaks < 2; breaks++)
          expect(await resume(started, { lastEventId: String(id), retryMs: 0 })).toBeUndefined();
        expect(service.requests).toHaveLength(Math.min(5 * id, 50));
      }
      const failed = [...codes, 503, 503].map((code, n) => `${n + 1} unavailable status ${code}`);
      expect(started.outcomes().slice(0, 5)).toEqual(failed);
    });

    test.each([204, 404, 500, 302])('that is answered with %i is the last one', async (code) => {
      const started = await start([status(`${code} No`)]);
      expect(await resume(started)).toBeUndefined();
      expect(started.outcomes()).toEqual([`1 over status ${code}`]);
    });

    test('takes a new turn after a 429', async () => {
      const started = await start([status('429 Busy', 'Retry-After: 1'), stream]);
      const answer = await resume(started);
      expect(answer?.status).toBe(200);
      const first = ['turn', 'sent', 'refused 1000', '1 rate_limited status 429'];
      expect(events).toEqual([...first, 'turn', 'sent']);
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

    test('gives up with its signal while it waits for its slot, and keeps no other one waiting', async () => {
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
  });

  test.each([
    ['double from one attempt to the next', { retryMs: 20, leastPauseMs: 0 }, [20, 40, 80, 160, 320, 640]],
    ['begin with a quarter of a second, up to four', {}, [250, 500, 1_000, 2_000, 4_000, 4_000]],
    [
      'begin with the `retry:` of the service',
      { retryMs: 3_000 },
      [3_000, 4_000, 4_000, 4_000, 4_000, 4_000],
    ],
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
    const attempted = await attemptResumption(options, {
      lastEventId: '7',
      onSent() {},
      signal: stop.signal,
    });
    expect(attempted).toMatchObject({ outcome: 'rate_limited', askedMs });
    await until(() => service.sockets[0]?.destroyed === true);
  });

  test.each([
    ['may wait longer for its slot than for the answer', false, 'unavailable'],
    ['has its whole time for the answer after that', true, 'timeout'],
  ])('an attempt that was delayed %s', async (_title, isSilent, outcome) => {
    stopClock();
    const { options } = await start([isSilent ? () => {} : status('503 No')]);
    const turn: HealerOptions['turn'] = async (signal) => ({
      ...(await options.turn(signal)),
      async renewSlot() {
        pass(5_500);
        // By then, the time for the answer has begun again.
        if (isSilent) setImmediate(pass, 5_000);
      },
    });
    const send: HealerOptions['send'] = (fingerprint) => async (request, sending) => {
      await sending.onDelayed();
      return options.send(fingerprint)(request, sending);
    };
    const attempt = { lastEventId: '7', onSent() {}, signal: stop.signal };
    expect(await attemptResumption({ ...options, turn, send }, attempt)).toMatchObject({ outcome });
  });
});

describe('the gate of resumptions', () => {
  const BOT = 'acme/helper';
  let now = 0;
  beforeEach(() => {
    now = 0;
  });
  afterEach(() => {
    jest.useRealTimers();
  });

  /** A gate, and a function that enters it and notes in `entered` who was let in. */
  function newGate() {
    const gate = healingGate(() => now);
    const entered: string[] = [];
    const passes = new Map<string, GatePass>();
    const enter = async (name: string, { bot = BOT, signal = new AbortController().signal } = {}) => {
      passes.set(name, await gate.enter(bot, signal));
      entered.push(name);
    };
    const pass = (name: string) => passes.get(name) as GatePass;
    return { gate, entered, enter, pass };
  }

  /** Lets all promises settle that wait for nothing else. */
  const settled = () => new Promise((resolve) => setImmediate(resolve));

  describe('a gate', () => {
    test('lets one through at a time, in their order, until a resumption has gone on with its run', async () => {
      const { gate, entered, enter, pass } = newGate();
      for (const name of ['a', 'b', 'c', 'd']) void enter(name);
      await settled();
      expect(entered).toEqual(['a']);
      pass('a').leave();
      pass('a').leave();
      await settled();
      expect(entered).toEqual(['a', 'b']);
      gate.proven(BOT);
      await settled();
      expect(entered).toEqual(['a', 'b', 'c', 'd']);
      void enter('e');
      await settled();
      expect(entered).toContain('e');
    });

    test('is shut again a minute after the last good resumption', async () => {
      const { gate, entered, enter } = newGate();
      gate.proven(BOT);
      now = 59_999;
      await enter('a');
      await enter('b');
      now = 60_000;
      for (const name of ['c', 'd']) void enter(name);
      await settled();
      expect(entered).toEqual(['a', 'b', 'c']);
    });

    test('lets all of a bot through once a new run was met, who then find that they may not heal', async () => {
      const { gate, entered, enter } = newGate();
      for (const name of ['a', 'b', 'c']) void enter(name);
      await enter('other', { bot: 'acme/other' });
      await settled();
      expect(entered.sort()).toEqual(['a', 'other']);
      gate.forbid(BOT);
      await settled();
      expect(entered.sort()).toEqual(['a', 'b', 'c', 'other']);
      expect([gate.mayHeal(BOT), gate.mayHeal('acme/other')]).toEqual([false, true]);
    });

    test('is kept for two seconds at most once the resumption was sent, and for any time before', async () => {
      jest.useFakeTimers({ doNotFake: ['setImmediate', 'performance'] });
      const { entered, enter, pass } = newGate();
      for (const name of ['a', 'b']) void enter(name);
      await settled();
      jest.advanceTimersByTime(60_000);
      await settled();
      expect(entered).toEqual(['a']);
      pass('a').sent();
      jest.advanceTimersByTime(1_999);
      await settled();
      expect(entered).toEqual(['a']);
      jest.advanceTimersByTime(1);
      await settled();
      expect(entered).toEqual(['a', 'b']);
    });

    test('leaves no timer, neither sent with two keys nor after it was left', async () => {
      jest.useFakeTimers();
      const { enter, pass } = newGate();
      await enter('a');
      pass('a').sent();
      pass('a').sent();
      expect(jest.getTimerCount()).toBe(1);
      pass('a').leave();
      await enter('b');
      pass('b').leave();
      pass('b').sent();
      expect(jest.getTimerCount()).toBe(0);
    });

    test.each(['while it waits', 'in the moment in which it is called'])(
      'forgets one that leaves %s, and calls the next',
      async (when) => {
        const { entered, enter, pass } = newGate();
        const leaving = new AbortController();
        await enter('a');
        const left = enter('b', { signal: leaving.signal });
        void enter('c');
        await settled();
        if (when === 'while it waits') leaving.abort('left');
        pass('a').leave();
        leaving.abort('left');
        await expect(left).rejects.toBe('left');
        await settled();
        expect(entered).toEqual(['a', 'c']);
      },
    );
  });

  describe('a gate of many bots', () => {
    const others = Array.from({ length: 1_000 }, (_, n) => `acme/bot-${n}`);

    test('forgets of the bots that were resumed the one that was first', async () => {
      const { gate, entered, enter } = newGate();
      for (const bot of [BOT, ...others]) gate.proven(bot);
      for (const name of ['a', 'b']) void enter(name);
      for (const name of ['c', 'd']) void enter(name, { bot: 'acme/bot-999' });
      await settled();
      expect(entered.sort()).toEqual(['a', 'c', 'd']);
    });

    test('forgets none that may not heal, and none of which a stream is being resumed', async () => {
      const { gate, entered, enter, pass } = newGate();
      gate.forbid('acme/other');
      await enter('a');
      for (const bot of others) gate.proven(bot);
      void enter('b');
      await settled();
      expect([gate.mayHeal('acme/other'), entered]).toEqual([false, ['a']]);
      pass('a').leave();
      await settled();
      expect(entered).toEqual(['a', 'b']);
    });

    test('heals no stream of a bot for which there is no room', async () => {
      const { gate, entered, enter } = newGate();
      for (const bot of others.slice(1)) gate.forbid(bot);
      expect(gate.mayHeal(BOT)).toBe(true);
      await enter('a', { bot: 'acme/bot-0' });
      for (const name of ['b', 'c']) await enter(name);
      gate.proven(BOT);
      expect([gate.mayHeal(BOT), entered]).toEqual([false, ['a', 'b', 'c']]);
    });
  });
});

describe('what a resumed stream repeats', () => {
  const KIB = 1024;

  interface ServedEvent {
    readonly id?: string;
    readonly data: string;
  }

  const of = (eventType: string, requestId: string, fact: string) =>
    JSON.stringify({ eventType, requestId, fact });
  const INIT = of('asgard.run.init', 'r-1', '');
  const OTHER_INIT = of('asgard.run.init', 'r-2', '');

  /** How a service writes its events. */
  interface Writing {
    readonly lineEnd: string;
    readonly beginning?: string;
    readonly between?: string;
  }
  const WRITINGS: readonly Writing[] = [
    { lineEnd: '\n' },
    { lineEnd: '\r\n', beginning: '\ufeff: hello\r\nretry: 5\r\n\r\n', between: ': ping\r\n' },
    { lineEnd: '\r' },
  ];

  function written(run: readonly ServedEvent[], { lineEnd, beginning = '', between = '' }: Writing): Buffer {
    const events = run.map(({ id, data }) => {
      const lines = id === undefined ? [`data: ${data}`] : [`id: ${id}`, `data: ${data}`];
      return `${lines.join(lineEnd)}${lineEnd}${lineEnd}${between}`;
    });
    return Buffer.from(beginning + events.join(''));
  }

  function eventsIn(bytes: Buffer): ServedEvent[] {
    const events: ServedEvent[] = [];
    createParser({
      onEvent: ({ id, data }) => events.push(id === undefined ? { data } : { data, id }),
    }).feed(bytes.toString());
    return events;
  }

  /** What the relay does with a stream that is resumed: the order of its parts as in the carrying of streams. */
  function relay({ lastEventId, room = KIB * KIB }: { lastEventId?: string; room?: number } = {}) {
    const held = heldBytes(room);
    const limits = { maxBytes: 64 * KIB, held, onUnheld: () => undefined };
    const cursor = streamCursor({ lastEventId, held, keepsTail: true });
    let events = wholeEvents(limits);
    let head: ResumedHead | undefined;
    let wasProven = false;
    const down: Buffer[] = [];
    return {
      held,
      cursor,
      down: () => Buffer.concat(down),
      isOpen: () => head !== undefined,
      isProven: () => head?.isProven === true || wasProven,
      /** Takes bytes of the service; returns what is wrong with them. */
      take(chunk: Buffer): string | undefined {
        for (const passed of push(events, chunk)) {
          const verdict = head ? takeHead(head, passed) : { pieces: [passed] };
          if (typeof verdict === 'string') return verdict;
          for (const one of verdict.pieces) {
            noteSent(cursor, one);
            down.push(one.bytes);
          }
          wasProven ||= head?.isProven === true;
          if (head && isDecided(head)) head = undefined;
        }
        return undefined;
      },
      /** The service's stream broke. Returns whether it can be resumed. */
      breaks(): boolean {
        dropRest(events);
        if (head) dropHead(head);
        const point = resumePointOf(cursor);
        events = wholeEvents(limits);
        head = point && resumedHead(point, held);
        return head !== undefined;
      },
      end(): void {
        dropRest(events);
        if (head) dropHead(head);
        forgetTail(cursor);
        expect(held.bytes()).toBe(0);
      },
    };
  }

  /** The events with which a service goes on after the event at `from`, of which `delivered` arrived. */
  const RESUMES: ((
    run: readonly ServedEvent[],
    from: number,
    delivered: number,
  ) => readonly ServedEvent[])[] = [
    // It goes on live, repeats what came after the id, or repeats that event as well.
    (run, _from, delivered) => run.slice(delivered),
    (run, from) => run.slice(from + 1),
    (run, from) => run.slice(from),
  ];

  /** Whether the events that come next equal all that came after the id: nobody can tell them from a repetition. */
  function isAmbiguous(run: readonly ServedEvent[], from: number, delivered: number): boolean {
    const tail = run.slice(from + 1, delivered).filter(({ data }) => data !== INIT);
    const next = run.slice(delivered, delivered + tail.length);
    return tail.length > 0 && JSON.stringify(tail) === JSON.stringify(next);
  }

  /** A run with the same words more than once, and ids on some events, or on all. */
  const runs = fc
    .tuple(
      fc.array(fc.tuple(fc.constantFrom('so', 'ha', '😀'), fc.boolean()), { maxLength: 10 }),
      fc.boolean(),
    )
    .map(([events, haveAllIds]): ServedEvent[] =>
      [
        { data: INIT, isKept: false },
        ...events.map(([text, isKept]) => ({ data: of(isKept ? 'kept' : '', 'r-1', text), isKept })),
        { data: of('asgard.run.done', 'r-1', ''), isKept: false },
      ].map(({ data, isKept }, n) => (haveAllIds || isKept ? { data, id: `n${n}` } : { data })),
    );
  /** Where a stream breaks, as a part of its length. */
  const places = fc.nat({ max: 10_000 }).map((n) => n / 10_000);

  test('a stream that breaks anywhere, and then once more, is the unbroken one for the client', () => {
    const how = fc.record({ writing: fc.constantFrom(...WRITINGS), resumes: fc.constantFrom(...RESUMES) });
    let healed = 0;
    const isHealed = (
      run: readonly ServedEvent[],
      { writing, resumes }: { writing: Writing; resumes: (typeof RESUMES)[number] },
      breaks: readonly number[],
      lengths: readonly number[],
    ) => {
      const one = relay();
      let stream = written(run, writing);
      for (const place of breaks) {
        const end = Math.floor(place * (stream.length + 1));
        for (const piece of inPieces(stream.subarray(0, end), lengths)) {
          // `expect` for each piece would take longer than all the rest.
          const verdict = one.take(piece);
          if (verdict) throw new Error(verdict);
        }
        if (place > 1) break;
        const seen = eventsIn(one.down());
        expect(one.breaks()).toBe(seen.some(({ id }) => id !== undefined));
        const id = resumePointOf(one.cursor)?.lastEventId;
        if (id === undefined) return one.end();
        const from = run.findIndex((event) => event.id === id);
        fc.pre(resumes !== RESUMES[0] || !isAmbiguous(run, from, seen.length));
        stream = written(resumes(run, from, seen.length), writing);
      }
      expect(eventsIn(one.down())).toEqual(run);
      healed += 1;
      one.end();
    };
    const breaks = fc.tuple(places, places).map((twice) => [...twice, 2]);
    fc.assert(fc.property(runs, how, breaks, splits, isHealed), { numRuns: 3_000 });
    expect(healed).toBeGreaterThan(1_000);
  });

  /** A stream that broke after these bytes and is being resumed. */
  function resumed(before: string, options: Parameters<typeof relay>[0] = {}) {
    const one = relay(options);
    one.take(Buffer.from(before));
    expect(one.breaks()).toBe(true);
    const already = one.down().length;
    return {
      ...one,
      /** What is sent of `bytes`, or the verdict. */
      take: (...bytes: readonly string[]) => {
        for (const piece of bytes) {
          const verdict = one.take(Buffer.from(piece));
          if (verdict) return verdict;
        }
        return one.down().subarray(already).toString();
      },
    };
  }

  const KEPT = 'id: 1\ndata: kept\n\n';
  const [A, B, C] = ['data: a\n\n', 'data: b\n\n', 'data: c\n\n'] as const;
  const BEFORE = KEPT + A + B;
  const LARGE = `data: ${'x'.repeat(64 * KIB)}`;
  const delta = `data: ${of('asgard.message.delta', 'r-1', 'x')}\n\n`;
  const from40 = { lastEventId: '40' };
  const UUID = '01234567-89ab-cdef-0123-456789abcdef';

  type Row = [
    title: string,
    before: string,
    pieces: readonly string[],
    sent: string,
    options?: { readonly lastEventId?: string },
  ];
  /** What services do that the property above does not know. */
  const ROWS: readonly Row[] = [
    [
      'sends the event with the last id if it is another',
      KEPT,
      ['id: 1\ndata:kept\n\n'],
      'id: 1\ndata:kept\n\n',
    ],
    ['lets the same event be sent the second time, after a tail', BEFORE, [KEPT + KEPT], KEPT],
    ['drops the event of the last id only before the events after it', BEFORE, [KEPT + A + B + KEPT], KEPT],
    ['drops events only in their order', BEFORE, [B + A], B + A],
    [
      'is not decided by its BOM, comments, and blocks without data',
      BEFORE,
      ['\ufeff', ': hello\n', 'retry: 5\n\n', '\n\n', A, ': ping\n', 'event: e\n\n', '\n', B, C],
      `: hello\nretry: 5\n\n: ping\nevent: e\n\n${C}`,
    ],
    [
      'sends an LF that comes late with its comment',
      BEFORE,
      [': p\r', `\n${A}`, 'retry: 5\n\r', '\n'],
      ': p\r\nretry: 5\n\r\n',
    ],
    [
      'tells another run late',
      `data: ${INIT}\n\n${KEPT}`,
      [': p\n\n\nretry: 4\n\n', `data: ${OTHER_INIT}\n\n`],
      'new_run',
    ],
    ['tells another run by any event', `id: 1\n${delta}`, [delta.replace('r-1', 'r-2')], 'new_run'],
    [
      'tells another run however it is written',
      `id: 1\ndata: ${INIT}\n\n`,
      ['data: {"eventType": "asgard.run\\u002einit", "requestId":"r-2"}\n\n'],
      'new_run',
    ],
    [
      'knows the run of a stream that began in its middle',
      delta,
      [`data: ${OTHER_INIT}\n\n`],
      'new_run',
      from40,
    ],
    ['drops what such a stream repeats', delta, [`data: ${INIT}\n\n${delta}`], '', from40],
    ["does not compare the run's first event", `id: 40\n\ndata: ${INIT}\n\n${A}`, [A + B], B],
    [
      'tells another run by an event that is too large to hold',
      delta,
      [`data: ${OTHER_INIT.replace('""', `"${'x'.repeat(65 * KIB)}"`)}`],
      'new_run',
      from40,
    ],
    [
      'is sent with an event that is too large to hold',
      BEFORE,
      [A, LARGE, '\n\n', B],
      `${A}${LARGE}\n\n${B}`,
    ],
  ];

  describe('the head of a resumed stream', () => {
    test.each(ROWS)('%s', (_title, before, pieces, sent, options = {}) => {
      const one = resumed(before, options);
      expect(one.take(...pieces)).toBe(sent);
      one.end();
    });

    test('sends comments at once while events are held', () => {
      const one = resumed(BEFORE);
      const before = one.held.bytes();
      one.take(A);
      const holding = one.held.bytes();
      expect(holding).toBeGreaterThan(before);
      expect(one.take(...Array<string>(1000).fill(': ping\n'))).toBe(': ping\n'.repeat(1000));
      expect(one.held.bytes()).toBe(holding);
      one.end();
    });

    test('drops an LF that comes late, with the event that it belongs to', () => {
      const one = resumed('id: 1\r\ndata: kept\r\n\r\ndata: a\r\n\r\n');
      expect([one.take('id: 1\r\ndata: kept\r\n\r', '\n', 'data: a\r\n\r'), one.isOpen()]).toEqual([
        '',
        true,
      ]);
      expect([one.take('\n'), one.isOpen()]).toEqual(['', false]);
      expect(one.take('data: b\r\n\r', '\n')).toBe('data: b\r\n\r\n');
      one.end();
    });

    test.each([
      ['the event with the last id', KEPT, true],
      ['an event of the tail', delta, true],
      ['another event of the run', delta.replace('"x"', '"b"'), true],
      ['a large event of the run', delta.replace('"x"', `"${'b'.repeat(64 * KIB)}`).trimEnd(), true],
      ['an event that names no run', B, false],
      ['a comment', ': ping\n', false],
    ])('with %s proves that the run goes on, or does not', (_what, bytes, isProof) => {
      const one = resumed(KEPT + delta);
      one.take(bytes);
      expect(one.isProven()).toBe(isProof);
      one.end();
    });

    test('is dropped if there is no room to hold it', () => {
      const kept = `data: ${'x'.repeat(3000)}\n\n`;
      const one = resumed(`id: 1\n\n${kept}${B}`, { room: 2000 });
      expect([one.take(kept), one.down().toString()]).toEqual(['no_room', `id: 1\n\n${kept}${B}`]);
      one.end();
    });

    test('is dropped if half an event finds no room, since nobody knows of which run it is', () => {
      const one = resumed(BEFORE, { room: 1100 });
      expect(one.held.take(100)).toBe(true);
      expect([one.take(`data: ${of('asgard.run', 'r', '')}`), one.down().toString()]).toEqual([
        'no_room',
        BEFORE,
      ]);
      one.held.release(100);
      one.end();
    });
  });

  test('another run is known by a whole UUID, even in the first bytes of an event that is sent in parts', () => {
    const event = (requestId: string) => `data: ${of('kept', requestId, 'x'.repeat(2_000))}`;
    const held = heldBytes(1 << 20);
    const cursor = streamCursor({ lastEventId: undefined, held, keepsTail: true });
    noteSent(cursor, wholePiece(Buffer.from(`id: 1\n${event(UUID)}\n\n`)));
    const point = resumePointOf(cursor);
    const verdictOn = (text: string) =>
      point && takeHead(resumedHead(point, held), { ...wholePiece(Buffer.from(text)), part: 'begins' });
    expect(verdictOn(event(UUID.replace(/f$/, '0')))).toBe('new_run');
    expect(verdictOn(event(UUID))).toMatchObject({ pieces: [{ part: 'begins' }] });
  });
});
