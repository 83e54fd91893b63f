import { afterEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import { joining } from '../../src/client/transport/joining.ts';
import { reconnecting, resuming } from '../../src/client/transport/reconnecting.ts';
import { RelayError } from '../../src/client/transport/relay-error.ts';
import { countSignOuts, dataOf, readAll } from '../harness/clients/client-pair.ts';
import {
  begins,
  breaks,
  checkScripts,
  ends,
  errorEvent,
  ids,
  page,
  refuses,
  type Script,
  SOON,
  scripted,
  times,
} from '../harness/clients/scripted.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { jsonEvent as event } from '../harness/service/raw-upstream.ts';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  jest.useRealTimers();
  for (const close of closers.splice(0)) await close();
});

async function start(script: Script) {
  const server = await scripted(script);
  closers.push(server.close);
  return server;
}

const LOST_CONNECTION = { code: 'connection_lost', status: 0 };
const destroys = (socket: { destroy(): unknown }) => void socket.destroy();

describe('a message with ids whose connection breaks', () => {
  let id = 0;
  checkScripts([
    {
      title: 'is resumed after its last id, in any script',
      answers: [breaks(SOON, `id: né 🦊\n${event(1)}`, event(2), 'data: {"half'), ends(event(2), event(3))],
      said: [1, 2, 3],
      calls: ['POST', 'RUN né 🦊', 'POST né 🦊'],
      states: ['streaming', 'waiting', 'streaming', 'done'],
    },
    {
      title: 'is resumed after each temporary failure: a page, no answer, a broken resumption, silence',
      answers: [
        ...[breaks(SOON, ids(1)), page(502), destroys, breaks(event('again')), begins(':\n\n')],
        ends(ids(2)),
      ],
      silenceMs: 200,
      said: [1, 'again', 2],
      calls: ['POST', 'RUN 1', ...times(5, 'POST 1')],
    },
    ...[
      [502, 'upstream_unreachable'] as const,
      [504, 'upstream_timeout'] as const,
      [429, 'rate_limited'] as const,
    ].map(([status, code]) => ({
      title: `is resumed after a refusal of its resumption, which is no run: ${status} ${code}`,
      answers: [breaks(SOON, ids(1)), refuses(status, code, { retryable: false }), ends(ids(2))],
      said: [1, 2],
      calls: ['POST', 'RUN 1', 'POST 1', 'POST 1'],
    })),
    {
      title: 'fails after five resumptions without a new id',
      answers: [breaks(SOON, ids(1)), breaks('data: {"half')],
      said: [1],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN 1', ...times(5, 'POST 1')],
    },
    {
      title: 'fails if the service starts at the beginning each time',
      answers: [breaks(SOON, ids(1, 2))],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN 2', ...times(5, 'POST 2')],
    },
    {
      title: 'is resumed as long as new ids arrive, and fails at last',
      answers: [(...to) => breaks(SOON, ids(++id))(...to)],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN 1', ...Array.from({ length: 50 }, (_, at) => `POST ${at + 1}`)],
    },
    {
      title: 'fails after an event with an empty id',
      answers: [breaks(SOON, ids(1), `id\n${event(2)}`)],
      said: [1, 2],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN'],
    },
    {
      title: 'fails at the deadline of its resumption',
      answers: [breaks(SOON, ids(1)), refuses(504, 'deadline_exceeded', { maybeStarted: true })],
      said: [1],
      error: { code: 'deadline_exceeded', status: 504, maybeStarted: true },
      calls: ['POST', 'RUN 1', 'POST 1'],
    },
    {
      title: 'is not called unsent where a load balancer answers its resumptions',
      answers: [breaks(SOON, ids(1)), page(503)],
      said: [1],
      error: { code: 'unreachable', status: 503, retryable: undefined },
      calls: ['POST', 'RUN 1', ...times(5, 'POST 1')],
    },
    ...[
      ['that does not say whether another try makes sense', 'upstream_stream_broken', {}] as const,
      ['at the deadline', 'deadline_exceeded', { status: 504, retryable: false }] as const,
    ].map(([what, code, fields]) => ({
      title: `is not resumed after an error event ${what}`,
      answers: [ends(SOON, ids(1), errorEvent(code, fields))],
      said: [1],
      error: { message: 'No.', status: 502, code, retryable: false, ...fields },
      calls: ['POST'],
    })),
  ]);
});

describe('a message without ids whose connection breaks', () => {
  const once = { answers: [breaks(event(1))], said: [1], calls: ['POST', 'RUN'] };
  checkScripts([
    ...Object.entries({
      'the connection fails': destroys,
      'the relay shuts down': refuses(503, 'draining', { retryable: 'new message' }),
      'a proxy answers 502': page(502),
      'a proxy answers 503': page(503),
      'the stream breaks again': breaks(':\n'),
    }).map(([when, failure]) => ({
      title: `is asked for by its name, and once more when ${when}`,
      answers: [breaks(event(1))],
      joined: [failure, ends(event(1), event(2))],
      ...{ said: [1, 2], calls: ['POST', 'RUN', 'RUN'] },
    })),
    { ...once, title: 'fails where there is no such run', error: LOST_CONNECTION },
    ...[404, 501, 200].map((status) => ({
      ...{ ...once, title: `fails where a page with ${status} answers for its name`, joined: [page(status)] },
      error: LOST_CONNECTION,
    })),
    {
      ...{ ...once, title: 'ends with the refusal of its session' },
      ...{ joined: [refuses(401, 'unauthenticated', { retryable: false })] },
      error: { code: 'unauthenticated', status: 401 },
    },
    {
      ...{ ...once, title: 'ends with what it has failed with before its stream began' },
      ...{
        answers: [destroys],
        joined: [refuses(502, 'upstream_bad_response', { retryable: false })],
        said: [],
      },
      error: { code: 'upstream_bad_response', status: 502 },
    },
    ...(
      [
        ['is that of another message', event('other') + event(2)],
        ['is another one from its second event on', event(1) + event('other') + event(3)],
        ['has less than was read before', ''],
      ] as const
    ).map(([what, joined]) => ({
      ...{ ...once, title: `fails if what has its name ${what}`, joined: [ends(joined)] },
      ...{ answers: [breaks(event(1), event(2))], said: [1, 2], error: LOST_CONNECTION },
    })),
  ]);
});

describe('the history of a conversation whose connection breaks', () => {
  const gone = refuses(404, 'x', { type: undefined });
  checkScripts(
    [
      {
        title: 'is resumed after its last id, also after a refusal for a while',
        answers: [breaks(SOON, event(1, 7), event('delta')), page(503), ends(event(2, 8))],
        ...{ said: [1, 'delta', 2], calls: ['GET', 'GET 7', 'GET 7'] },
      },
      {
        title: 'ends when the conversation is gone meanwhile',
        ...{ answers: [breaks(SOON, event(1, 7)), gone], said: [1], calls: ['GET', 'GET 7'] },
      },
      {
        title: 'shows also what is the same as before the break',
        answers: [breaks(SOON, event(1, 7), event('word')), ends(event('word'), event(2, 8))],
        ...{ said: [1, 'word', 'word', 2], calls: ['GET', 'GET 7'] },
      },
    ],
    true,
  );
});

const WORDS = 'The relay was restarted; the answer is not complete.';
const LOST = errorEvent('answer_lost', { detail: WORDS, retryable: false, maybeStarted: true });

describe('an answer that the relay has lost', () => {
  const AS_LOST = { code: 'answer_lost', message: WORDS, retryable: false, maybeStarted: true };
  const begun = ends(SOON, ids(1), LOST);
  checkScripts([
    {
      title: 'goes on after its last id, also if the relay calls it draining',
      answers: [ends(SOON, ids(1), errorEvent('draining', { status: 503 })), ends(ids(2), event(3))],
      ...{ said: [1, 2, 3], calls: ['POST', 'POST 1'] },
      states: ['streaming', 'waiting', 'streaming', 'done'],
    },
    {
      title: 'goes on from what the relay still has by its name',
      ...{ answers: [breaks(SOON, event(1)), ends(event(3))], joined: [ends(event(1), event(2, 7), LOST)] },
      ...{ said: [1, 2, 3], calls: ['POST', 'RUN', 'POST 7'] },
    },
    {
      title: 'goes on after its last id even if the relay has less than was read',
      ...{ answers: [breaks(SOON, ids(1), event(2)), ends(event(2), event(3))], joined: [ends(LOST)] },
      ...{ said: [1, 2, 3], calls: ['POST', 'RUN 1', 'POST 1'] },
    },
    {
      title: 'goes on although it is lost again, as long as another instance waits for the lost one',
      answers: [
        ...[ends(SOON, ids(1), event(2), LOST), ends(event(2), event(3), LOST)],
        refuses(503, 'busy', { retryable: 'new message' }),
        ends(event(2), event(3), event(4)),
      ],
      ...{ said: [1, 2, 3, 4], calls: ['POST', ...times(3, 'POST 1')] },
    },
    {
      title: 'ends as lost if by its name it has no id either',
      ...{ answers: [breaks(SOON, event(1))], joined: [ends(event(1), event(2), LOST)] },
      ...{ said: [1, 2], error: AS_LOST, calls: ['POST', 'RUN'] },
    },
    {
      title: 'ends as lost after five tries without a new id',
      ...{ answers: [begun, ends(LOST)], said: [1], error: AS_LOST, calls: ['POST', ...times(5, 'POST 1')] },
    },
    {
      title: 'ends as lost, not as one that has not run, if the rest is refused',
      ...{ answers: [begun, refuses(404, 'upstream_refused', { retryable: 'new message' })] },
      ...{ said: [1], error: AS_LOST, calls: ['POST', 'POST 1'] },
    },
    {
      title: 'ends as lost, not as one that has not run, if the rest cannot be had',
      ...{ answers: [begun, refuses(503, 'busy', { retryable: 'new message' })] },
      ...{ said: [1], error: AS_LOST, calls: ['POST', ...times(5, 'POST 1')] },
    },
    {
      title: 'ends with the refusal of its session',
      ...{ answers: [begun, refuses(401, 'unauthenticated')], said: [1], calls: ['POST', 'POST 1'] },
      error: { code: 'unauthenticated', status: 401 },
    },
    {
      title: 'ends with what its run has failed with at last',
      ...{ answers: [begun, ends(ids(2), errorEvent('upstream_stream_broken'))], said: [1, 2] },
      ...{ error: { code: 'upstream_stream_broken' }, calls: ['POST', 'POST 1'] },
    },
    ...(
      [
        ['in another form', [event('a'), event('bc'), event('d')], ['a', 'bc', 'd']],
        ['behind a new id', [event('a'), event('kept', 2), event('b')], ['a', 'kept', 'b']],
      ] as const
    ).map(([how, repeated, shown]) => ({
      title: `shows what the bot service repeats of it ${how}`,
      answers: [ends(SOON, event('kept', 1), event('a'), event('b'), LOST), ends(...repeated)],
      ...{ said: ['kept', 'a', 'b', ...shown], calls: ['POST', 'POST 1'] },
    })),
    {
      title: 'is asked for again if a part of what was read is missing at the end',
      answers: [
        ends(SOON, ids(1), event('a'), event('b'), LOST),
        ends(event('a')),
        ends(...'abc'.split('').map((one) => event(one))),
      ],
      ...{ said: [1, 'a', 'b', 'c'], calls: ['POST', 'POST 1', 'POST 1'] },
    },
  ]);

  /** How a run is read: its events, of which some have ids, where each answer is cut, and how its bytes are split. */
  const readings = fc.record({
    hasId: fc.array(fc.boolean(), { minLength: 1, maxLength: 12 }),
    cuts: fc.array(fc.nat(12), { maxLength: 4 }),
    pieces: fc.infiniteStream(fc.integer({ min: 1, max: 40 })),
    repeats: fc.boolean(),
  });

  test('is read once and whole wherever it is lost, and in whatever pieces it comes', async () => {
    await fc.assert(
      fc.asyncProperty(readings, async ({ hasId, cuts, pieces, repeats }) => {
        // Only what has an id before it can be resumed.
        const run = [true, ...hasId].map((has, at) => event(`event ${at}`, has ? at + 1 : undefined));
        let sent = 0;
        const answer: typeof fetch = async (_, init) => {
          const last = Number(new Headers(init?.headers).get('Last-Event-ID'));
          const from = repeats ? last : sent;
          const cut = cuts.shift();
          sent = Math.max(sent, Math.min(run.length, from + 1 + (cut ?? run.length)));
          return streamed(
            `${SOON}${run.slice(from, sent).join('')}${cut === undefined ? '' : LOST}`,
            () => pieces.next().value ?? 1,
          );
        };
        const { events, error } = await readAll(clientOf(answer).send('hi'));
        const said = run.map((_, at) => `event ${at}`);
        expect({ error, said: dataOf(events) }).toEqual({ error: undefined, said });
      }),
    );
  });
});

/** A client that asks nobody but `answer`. */
const clientOf = (answer: typeof fetch) =>
  testClient({ baseUrl: 'http://relay.example', namespace: 'a', botProviderName: 'b', fetch: answer });

/** An event stream that comes in pieces of these sizes, and then ends or, with `isCut`, fails. */
function streamed(text: string, sizeOf = () => text.length, isCut = false): Response {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (let rest = Buffer.from(text); rest.length > 0; ) {
        const size = sizeOf();
        controller.enqueue(Uint8Array.from(rest.subarray(0, size)));
        rest = rest.subarray(size);
      }
    },
    pull: (controller) => (isCut ? controller.error(new TypeError('cut')) : controller.close()),
  });
  return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
}

test('a message is asked for by its conversation and its id', async () => {
  const { client, requests } = await start({ answers: [breaks(event(1))], joined: [ends(event(1))] });
  await readAll(client.send('hi'));
  const [sent, asked] = requests();
  const { customChannelId, customMessageId } = JSON.parse(`${sent?.body}`);
  const query = new URLSearchParams(/\?(\S+) HTTP/.exec(asked?.requestLine ?? '')?.[1]);
  expect(Object.fromEntries(query)).toEqual({
    custom_channel_id: customChannelId,
    custom_message_id: customMessageId,
  });
  expect(asked?.body).toHaveLength(0);
});

test('a resumption has the first body, even if the caller has changed the object, and its own request id', async () => {
  const second = (socket: { end(text: string): unknown }) =>
    void socket.end(
      `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: second\r\n\r\n${event(2)}`,
    );
  const { client, requests } = await start({ answers: [breaks(SOON, ids(1)), second] });
  const message = { text: 'hi' };
  const stream = client.send(message);
  const { events } = await readAll(stream, () => {
    message.text = 'changed';
  });
  expect(dataOf(events)).toEqual([1, 2]);
  expect(requests().map(({ body }) => `${body}`)).toEqual(['{"text":"hi"}', '{"text":"hi"}']);
  expect(stream.requestId).toBe('second');
});

describe('a stream is not resumed', () => {
  const asks = {
    message: (client: BotClient) => client.send('hi'),
    history: (client: BotClient) => botConversation(client, 'c').history(),
  };
  test.each(['message', 'history'] as const)(
    'when another user has signed in meanwhile: a %s',
    async (what) => {
      const { client, calls } = await start({ answers: [breaks(SOON, ids(1)), ends(ids(2))] });
      await client.signIn('ada', 'x');
      const signOuts = countSignOuts(client);
      const { events, error } = await readAll(asks[what](client), () => client.signIn('bob', 'x'));
      expect(dataOf(events)).toEqual([1]);
      expect(error).toMatchObject({ code: 'session_ended', status: 401 });
      expect([calls().length, signOuts()]).toEqual([1, 0]);
    },
  );

  test('when the relay says that the session has ended, and the page is told', async () => {
    const { client, calls } = await start({
      answers: [breaks(SOON, ids(1)), refuses(401, 'unauthenticated')],
    });
    await client.signIn('ada', 'x');
    const signOuts = countSignOuts(client);
    expect((await readAll(client.send('hi'))).error).toMatchObject({ code: 'unauthenticated', status: 401 });
    expect([calls(), signOuts()]).toEqual([['POST', 'RUN 1', 'POST 1'], 1]);
  });
});

describe('the pause before a stream is asked for again', () => {
  const CUT = new RelayError('Cut.', { code: 'connection_lost', status: 0 });
  const busy = (retryAfter: number, retryable?: 'same message') =>
    new RelayError('Busy.', { code: 'busy', status: 503, retryable, retryAfter });
  interface Position {
    pauseAfter(error: RelayError): number | undefined;
  }

  test('of a history comes again after two minutes', () => {
    jest.useFakeTimers();
    const history = reconnecting({ open: async () => new Response(), isLive: true });
    history.onId('7');
    for (let n = 0; n < 5; n++) expect(history.pauseAfter(CUT)).toBeGreaterThan(0);
    expect(() => history.pauseAfter(CUT)).toThrow(CUT);
    jest.advanceTimersByTime(121_000);
    expect(history.pauseAfter(CUT)).toBeGreaterThan(0);
    jest.useRealTimers();
  });

  /** All pauses in a row, up to 100. */
  function pausesOf(position: Position, error = CUT): number[] {
    const pauses: number[] = [];
    for (let next = position.pauseAfter(error); next !== undefined && pauses.length < 100; ) {
      pauses.push(next);
      next = position.pauseAfter(error);
    }
    return pauses;
  }
  /** Each pause is longer than its base by up to a half, and the pages differ: all of them are cut at once by a restart. */
  function expectSpread(make: () => Position, count: number, bases: readonly number[]): void {
    const pages = Array.from({ length: 40 }, () => pausesOf(make()));
    expect(new Set(pages.map(({ length }) => length))).toEqual(new Set([count]));
    for (const [at, base] of bases.entries()) {
      const those = pages.map((pauses) => Number(pauses[at]));
      expect(Math.min(...those)).toBeGreaterThanOrEqual(base);
      expect(Math.max(...those)).toBeLessThan(base * 1.5);
      expect(new Set(those).size).toBeGreaterThan(20);
    }
  }
  function resumed(isLive = false) {
    const position = resuming(isLive);
    position.onId('7');
    return position;
  }
  /** A stream to join, of which one event was read. */
  function begun() {
    const position = joining();
    position.begin(false);
    position.take(EVENT, '1');
    return position;
  }
  const EVENT = { known: false, eventType: 'word', runId: undefined, id: undefined, raw: undefined } as const;

  test.each([
    ['that of `retry:`', 'retry: 7000\n\n', 7_000],
    ['a second without one', '', 1_000],
  ])('is %s, and up to a half more', async (_, retry, ms) => {
    jest.useFakeTimers();
    let asked = 0;
    const client = clientOf(async () =>
      ++asked === 1 ? streamed(retry + ids(1), undefined, true) : streamed(ids(2)),
    );
    const reading = readAll(client.send({ text: 'without a name' }));
    await jest.advanceTimersByTimeAsync(ms - 1);
    expect(asked).toBe(1);
    await jest.advanceTimersByTimeAsync(ms / 2 + 1);
    const { events, error } = await reading;
    expect([dataOf(events), error, asked]).toEqual([[1, 2], undefined, 2]);
  });

  test('doubles, five times without a new id', () => {
    expectSpread(() => resumed(), 5, [1000, 2000, 4000, 8000, 16_000]);
  });

  test('is a minute at most, whatever the other side says', () => {
    const anyTime = fc.double({ min: 0, max: 1e12, noNaN: true });
    fc.assert(
      fc.property(fc.boolean(), anyTime, anyTime, (isLive, retryMs, retryAfter) => {
        const position = resumed(isLive);
        position.onRetry(retryMs);
        const pause = Number(position.pauseAfter(busy(retryAfter)));
        expect(pause).toBeGreaterThanOrEqual(Math.min(60_000, Math.max(retryMs, retryAfter * 1000)));
        expect(pause).toBeLessThanOrEqual(60_000);
      }),
    );
    expect(resumed().pauseAfter(busy(7))).toBe(7_000);
  });

  test.each([
    ['as often as of a new one if it is live and has lasted for two minutes', true, 5],
    ['no more if it is a message, however long it has lasted', false, 0],
  ])('comes five times, and then %s', (_, isLive, more) => {
    jest.useFakeTimers();
    const position = resumed(isLive);
    expect(pausesOf(position)).toHaveLength(5);
    jest.advanceTimersByTime(119_000);
    expect(position.pauseAfter(CUT)).toBeUndefined();
    jest.advanceTimersByTime(121_000);
    expect(pausesOf(position)).toHaveLength(more);
  });

  test('of a message that is joined comes 15 times in a row, within 45 s, and three times if it was never answered', () => {
    expectSpread(begun, 15, [250, 500, 1000, 2000, 2000]);
    expect(pausesOf(begun()).reduce((sum, pause) => sum + pause)).toBeLessThan(45_000);
    expect(pausesOf(joining())).toHaveLength(3);
  });

  test('of a message that is joined follows Retry-After, up to a minute in all', () => {
    expect(pausesOf(begun(), busy(25, 'same message'))).toEqual([25_000, 25_000]);
    expect(pausesOf(begun(), busy(61, 'same message'))).toEqual([]);
  });

  test('of a message that is joined comes as often again after a new event, up to 50 times in all', () => {
    const position = begun();
    let joins = 0;
    for (; position.pauseAfter(CUT) !== undefined; joins++) position.take(EVENT, 'again');
    expect(joins).toBe(50);
  });
});
