import { ReadableStream as NodeStream } from 'node:stream/web';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { readUIMessageStream, type UIMessageChunk } from 'ai';
import fc from 'fast-check';
import { answerChunks } from '../../src/client/ai-sdk/answer-chunks.ts';
import type { AnswerChunk } from '../../src/client/ai-sdk/chat-types.ts';
import { answerParts } from '../../src/client/channel/answer-parts.ts';
import { textOf } from '../../src/client/channel/channel-state.ts';
import type { MessagePart } from '../../src/client/channel/channel-types.ts';
import { type Facts, RelayError } from '../../src/client/session/bot-client.ts';
import type { BotEvent, Guards } from '../../src/client/transport/bot-event.ts';
import { eventReader, readText } from '../../src/client/transport/known-events.ts';
import { allOf, isReady, refuseUnhandledRejections, startRunsStage } from '../harness/clients/channels.ts';
import { type ClientPair, dataOf, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { ALL_BUT_INTERVALS } from '../harness/clock/intervals.ts';
import { until } from '../harness/clock/until.ts';
import { deltaOf, eventOf, typeOf } from '../harness/service/bot-runs.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

refuseUnhandledRejections();

let pair: ClientPair | undefined;
afterEach(async () => {
  jest.useRealTimers();
  await pair?.close();
  pair = undefined;
});

/** A client whose answers arrive in exactly these pieces. */
function clientOf(pieces: () => AsyncIterable<Uint8Array> | Iterable<Uint8Array>, silenceMs = 45_000) {
  const answer = () => {
    const headers = { 'Content-Type': 'text/event-stream' };
    return Promise.resolve(new Response(NodeStream.from(pieces()) as BodyInit, { headers }));
  };
  return testClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', silenceMs, fetch: answer });
}

/** A part of a stream: its lines, and the event that it is, if any. */
interface Part {
  readonly lines: readonly string[];
  readonly event?: { readonly eventType: string; readonly raw: unknown; readonly id: string | undefined };
}
const word = fc.string({ unit: fc.constantFrom('a', 'é', '🦊', '"', '{', ' ', ':', '1', 'data') });
/** Without backslashes: behind a name with one, V8 may read another escaped name wrongly (nodejs/node#63785). */
const json = fc
  .jsonValue()
  .map((raw) => JSON.stringify(raw))
  .filter((text) => !text.includes('\\\\'));
const data = fc.oneof(
  json.map((text) => ({ lines: [`data: ${text}`], raw: JSON.parse(text) as unknown })),
  // Several lines are one text, which is parsed if it is JSON.
  fc
    .tuple(fc.integer(), fc.integer())
    .map(([a, b]) => ({ lines: [`data: [${a},`, `data: ${b}]`], raw: [a, b] })),
  word.map((text) => ({ lines: [`data:no JSON ${text}`], raw: `no JSON ${text}` })),
  fc.constant({ lines: ['data'], raw: '' }),
);
const parts: fc.Arbitrary<Part> = fc.oneof(
  fc
    .record({
      data,
      eventType: fc.option(fc.constantFrom('delta', 'run', 'é')),
      id: fc.option(
        word.map((text) => `i${text}`),
        { nil: undefined },
      ),
    })
    .map(({ data: { lines, raw }, eventType, id }) => ({
      lines: [
        ...(eventType === null ? [] : [`event: ${eventType}`]),
        ...lines,
        ...(id === undefined ? [] : [`id: ${id}`]),
      ],
      event: { eventType: eventType ?? 'message', raw, id },
    })),
  fc.constant({ lines: [': a comment'] }),
  fc.constant({ lines: ['event: no data, no event'] }),
  fc.constant({ lines: ['other: x', 'retry: 5'] }),
);
const streams = fc.record({
  all: fc.array(parts, { maxLength: 8 }),
  end: fc.constantFrom('\n', '\r\n', '\r'),
  bom: fc.constantFrom('', '\uFEFF'),
  pieces: fc.infiniteStream(fc.integer({ min: 1, max: 30 })),
});

describe('the events of an answer', () => {
  test('are the same however the stream is written and split, and an incomplete one at the end is none', async () => {
    await fc.assert(
      fc.asyncProperty(streams, async ({ all, end, bom, pieces }) => {
        const lines = all.flatMap((part) => [...part.lines, '']);
        let rest = Buffer.from(bom + [...lines, 'data: half', 'id: half'].map((line) => line + end).join(''));
        const split = function* () {
          for (; rest.length > 0; rest = rest.subarray(1)) {
            const size = pieces.next().value ?? 1;
            yield Uint8Array.from(rest.subarray(0, size));
            rest = rest.subarray(size - 1);
          }
        };
        const { events, error } = await readAll(clientOf(split).send('hi'));
        const unknown = { known: false, runId: undefined };
        const expected = all.flatMap(({ event }) => (event ? [{ ...unknown, ...event }] : []));
        expect({ error, events }).toEqual({ error: undefined, events: expected });
      }),
      { numRuns: 300 },
    );
  });

  test('arrive one by one, as they are written', async () => {
    const toWrite = ['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n'];
    let writeNext = () => {};
    pair = await startClientPair((socket) => {
      socket.write(STREAM_HEAD);
      writeNext = () => {
        const next = toWrite.shift();
        socket.write(next ? chunk(next) : LAST_CHUNK);
      };
      writeNext();
    });
    // The next event is written only after this one was read.
    const { events } = await readAll(pair.client.send('hi'), () => writeNext());
    expect(dataOf(events)).toEqual([1, 2, 3]);
  });

  test('end with the error of a relay, wherever its documents are, and not with one of another program', async () => {
    const readError = (type: string) => {
      const problem = JSON.stringify({ type, code: 'answer_lost', status: 502, detail: 'Lost.' });
      return readAll(clientOf(() => [Buffer.from(`event: error\ndata: ${problem}\n\n`)]).send('hi'));
    };
    for (const place of ['/docs/problems.md', 'https://docs.example.com/relay/problems'])
      expect(await readError(`${place}#answer_lost`)).toMatchObject({
        events: [],
        error: { code: 'answer_lost', message: 'Lost.' },
      });
    for (const type of ['error', 'about:blank'])
      expect((await readError(type)).events).toMatchObject([{ raw: { type } }]);
  });
});

describe('silence', () => {
  const HEARTBEAT_MS = 50;
  const SILENCE_MS = 500;

  test('with heartbeats is no failure, and the heartbeats are no events', async () => {
    let beats = 0;
    /** Counts the bytes between the events. */
    const counted: typeof fetch = async (url, init) => {
      const response = await fetch(url, init);
      const [mine, counted] = (response.body as ReadableStream<Uint8Array>).tee();
      void (async () => {
        for await (const bytes of counted as unknown as AsyncIterable<Uint8Array>)
          if (Buffer.from(bytes).equals(Buffer.from(':\n'))) beats++;
      })();
      return new Response(mine, response);
    };
    pair = await startClientPair(
      async (socket) => {
        socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
        await until(() => beats * HEARTBEAT_MS > 2 * SILENCE_MS);
        socket.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
      },
      { HEARTBEAT_MS: String(HEARTBEAT_MS) },
      { silenceMs: SILENCE_MS, fetch: counted },
    );
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(error).toBeUndefined();
    expect(events.map(({ raw }) => raw)).toEqual([1, 2]);
  });

  test('ends the message with connection_silent and closes the connection to the bot service', async () => {
    let closed = false;
    pair = await startClientPair(
      (socket) => {
        socket.once('close', () => {
          closed = true;
        });
        socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
      },
      { HEARTBEAT_MS: '0' },
      { silenceMs: 200 },
    );
    const stream = pair.client.send('hi');
    const { events, error } = await readAll(stream);
    expect(events).toHaveLength(1);
    expect(error).toMatchObject({
      name: 'RelayError',
      code: 'connection_silent',
      status: 0,
      requestId: stream.requestId,
    });
    await until(() => closed);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('does not include the time of a slow reader between two events', async () => {
    jest.useFakeTimers({ doNotFake: [...ALL_BUT_INTERVALS] });
    const client = clientOf(
      () => ['data: 1\n\ndata: 2\n\n', 'data: 3\n\n'].map((text) => Buffer.from(text)),
      200,
    );
    const { events, error } = await readAll(client.send('hi'), () => jest.advanceTimersByTime(1_000));
    expect(error).toBeUndefined();
    expect(events).toHaveLength(3);
  });

  test('does not include the time in which the page is busy', async () => {
    const silenceMs = 100;
    const client = clientOf(async function* () {
      yield Buffer.from('data: 1\n\n');
      await new Promise<void>((resolve) => {
        setTimeout(() => {
          // The bytes that arrived meanwhile are read after the timers that are due.
          setImmediate(() => setTimeout(resolve));
          const from = performance.now();
          while (performance.now() - from < 3 * silenceMs);
          // The page has begun to wait before.
        }, 20);
      });
      yield Buffer.from('data: 2\n\n');
    }, silenceMs);
    const { events, error } = await readAll(client.send('hi'));
    expect(error).toBeUndefined();
    expect(events).toHaveLength(2);
  });

  test('can be allowed for ever', async () => {
    jest.useFakeTimers({ doNotFake: [...ALL_BUT_INTERVALS] });
    const client = clientOf(async function* () {
      yield Buffer.from('data: 1\n\n');
      await new Promise(setImmediate);
      jest.advanceTimersByTime(24 * 3_600_000);
      yield Buffer.from('data: 2\n\n');
    }, Number.POSITIVE_INFINITY);
    expect(await readAll(client.send('hi'))).toMatchObject({ events: { length: 2 }, error: undefined });
  });
});

type Fields = Record<string, unknown>;

const message = { messageId: 'm', text: 'Hello' };
const call = {
  processId: 'p',
  callSeq: 0,
  toolCall: { toolName: 'look', toolsetName: 'web', parameter: { at: 'it' } },
};

/** A fact of each kind, with all members that its type has. */
const FACTS: { readonly [K in keyof Facts]: Required<Facts[K]> } = {
  'asgard.run.init': { runInit: {} },
  'asgard.run.done': { runDone: {} },
  'asgard.run.error': { runError: { error: { message: 'Too many steps.', code: 'STEPS' } } },
  'asgard.message.start': { messageStart: { message: { messageId: 'm' } } },
  'asgard.message.delta': { messageDelta: { message } },
  'asgard.message.complete': { messageComplete: { message } },
  'asgard.message.user': { messageUser: { text: 'Hi', blobIds: ['b'] } },
  'asgard.message.feedback': { messageFeedback: { targetMessageId: 'm', verdict: 'GOOD' } },
  'asgard.tool_call.start': { toolCallStart: call },
  'asgard.tool_call.complete': { toolCallComplete: { ...call, toolCallResult: {} } },
  'asgard.tool_call.consent': { toolCallConsent: { pendingCalls: [{ toolCallId: 'c', ...call.toolCall }] } },
};

/** Members that can have any type. */
const ANY = ['parameter', 'toolCallResult'];

/** The paths of all members below `value`. */
function pathsIn(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  const here = path.length > 0 ? [path] : [];
  if (typeof value !== 'object' || value === null || ANY.includes(path.at(-1) ?? '')) return here;
  return [...here, ...Object.entries(value).flatMap(([name, of]) => pathsIn(of, [...path, name]))];
}

/** The fact with another value at `path`. */
function withOther(fact: object, path: readonly string[], other: unknown): object {
  const copy = structuredClone(fact);
  const parent = path.slice(0, -1).reduce((of, name) => of[name] as Fields, copy as Fields);
  parent[path.at(-1) as string] = other;
  return copy;
}

/** Members that may be missing, or null. */
const OPTIONAL = [
  ...['messageId', 'toolsetName', 'blobIds', 'blobIds.0'],
  ...['runError.error.code', 'messageUser.text'],
];
const read = eventReader();
const kindOf = (eventType: string, fact: unknown) => read({ eventType, fact }, 'message', undefined);
const isKnown = (eventType: string, fact: unknown) => kindOf(eventType, fact).known;
const isIn = (names: readonly string[], path: readonly string[]) =>
  names.some((name) => path.join('.').endsWith(name));

describe('the event', () => {
  test.each(Object.entries(FACTS))('%s is known, and only in its own shape', (eventType, fact) => {
    expect(read({ eventType, fact, requestId: 'run' }, 'other', 'a-1')).toEqual({
      ...{ known: true, eventType, fact, runId: 'run', id: 'a-1' },
      raw: { eventType, fact, requestId: 'run' },
    });
    for (const path of pathsIn(fact)) {
      const may = isIn([...ANY, ...OPTIONAL], path);
      const isWrong = (other: unknown) => [path.join('.'), isKnown(eventType, withOther(fact, path, other))];
      for (const other of [undefined, null, 5n, true]) expect(isWrong(other)).toEqual([path.join('.'), may]);
    }
    for (const other of [undefined, null, 'text', 5, [], {}]) expect(isKnown(eventType, other)).toBe(false);
    // Other members do not matter.
    expect(isKnown(eventType, { other: null, ...fact })).toBe(true);
  });

  test.each(Object.entries(FACTS))(
    '%s is known without its optional members of a wrong type',
    (eventType, fact) => {
      for (const path of pathsIn(fact).filter((one) => isIn(OPTIONAL, one))) {
        const whole = path.at(-1) === '0' ? path.slice(0, -1) : path;
        const rest = kindOf(eventType, withOther(fact, whole, undefined)).fact;
        expect(kindOf(eventType, withOther(fact, path, 5n)).fact).toEqual(rest);
      }
    },
  );

  test.each(['constructor', '__proto__', 'toString', 'asgard.usage', ''])('%j is not known', (eventType) => {
    expect(read({ eventType, fact: {} }, 'message', undefined)).toMatchObject({ known: false, eventType });
  });

  test.each([
    ['without data', ''],
    ['null', null],
    ['a list', [{ eventType: 'asgard.run.done' }]],
    ['whose type and run are no texts', { eventType: 5, requestId: 5, fact: { runDone: 5 } }],
  ])('%s is not known, and has the name that it has in the stream', (_, raw) => {
    expect(read(raw, 'asgard.run.done', undefined)).toEqual({
      ...{ known: false, eventType: 'asgard.run.done', runId: undefined, id: undefined, raw },
    });
  });

  test('of a kind of the application is known if its guard says so', () => {
    const guards = {
      'acme.chart': (fact: unknown) => (fact as { chart: unknown }).chart === 1,
      'acme.graph': undefined,
      'acme.ping': (fact: unknown) => fact === undefined,
    };
    const withGuards = eventReader(guards as Guards);
    const chart = (fact: unknown) => withGuards({ eventType: 'acme.chart', fact }, 'message', undefined);
    expect(chart({ chart: 1 })).toMatchObject({ known: true, fact: { chart: 1 } });
    // For the second of them, the guard throws.
    for (const fact of [{ chart: 2 }, undefined]) expect(chart(fact)).toMatchObject({ known: false });
    expect(withGuards({ eventType: 'acme.ping' }, 'message', undefined).known).toBe(true);
    expect(withGuards({ eventType: 'acme.graph', fact: {} }, 'message', undefined).known).toBe(false);
    expect(isKnown('acme.chart', { chart: 1 })).toBe(false);
    const done = { eventType: 'asgard.run.done', fact: { runDone: {} } };
    expect(withGuards(done, 'message', undefined).known).toBe(true);
  });

  test("of the client's own kind is known by its shape, whatever a guard says", () => {
    const guard = (isIt: boolean) => (_: unknown) => isIt;
    const guards = { 'asgard.run.done': guard(true), 'asgard.run.init': guard(false) };
    const withGuards = eventReader(guards as Guards);
    const isSeen = (eventType: string, fact: unknown) =>
      withGuards({ eventType, fact }, 'message', undefined).known;
    expect(isSeen('asgard.run.done', null)).toBe(false);
    expect(isSeen('asgard.run.init', { runInit: {} })).toBe(true);
  });

  test('asgard.run.error makes the answer fail also if its shape is not known', () => {
    const failed = (fact: unknown) =>
      readText(read({ eventType: 'asgard.run.error', fact }, 'message', undefined));
    for (const fact of [null, { runError: null }, { runError: { error: { message: 5 } } }])
      expect(() => failed(fact)).toThrow(
        new RelayError('The run of the bot failed.', { code: '', status: 200 }),
      );
    for (const code of [null, 402])
      expect(() => failed({ runError: { error: { message: 'No.', code } } })).toThrow('No.');
  });
});

/** Kinds of an application, with every name that could be taken for one of the client's own. */
const OWN = ['acme.any', 'asgard.own', 'asgard.run.own', 'asgard.message.own', 'asgard.tool_call.own', ''];
const KINDS = [...Object.keys(FACTS), ...OWN];
/** Takes everything for known, also kinds of the client's own. */
const guards = Object.fromEntries(KINDS.map((kind) => [kind, () => true])) as Guards;

/** What stands in place of a fact, or of a part of one. */
const odd = fc.oneof(
  fc.constantFrom<unknown>(null, undefined, 0, -1.5, true, '', 'text', [null], [[]], [{}], { length: 1 }),
  fc.jsonValue({ maxDepth: 2 }),
);
/** Any fact: odd as a whole, or that of a kind, with an odd part and odd members of other kinds. */
const facts = fc.oneof(
  odd,
  fc
    .record({
      whole: fc.constantFrom(...Object.values(FACTS)),
      at: fc.nat(),
      other: odd,
      others: fc.boolean(),
    })
    .map(({ whole, at, other, others }) => {
      const paths = pathsIn(whole);
      const changed = withOther(whole, paths[at % paths.length] ?? [], other);
      const members = Object.values(FACTS).flatMap((fact) => Object.keys(fact));
      return others ? { ...Object.fromEntries(members.map((name) => [name, other])), ...changed } : changed;
    }),
);
const oddEvents = fc.tuple(fc.constantFrom(...KINDS), facts);

describe('an event with an odd fact', () => {
  test('throws nothing but the error of a run, and of a kind of the application is a part with that fact', () => {
    fc.assert(
      fc.property(oddEvents, ([eventType, fact]) => {
        const event = eventReader(guards)({ eventType, fact }, 'message', undefined);
        for (const { take } of [answerParts(), answerChunks()])
          try {
            take(event);
          } catch (error) {
            expect([eventType, error]).toEqual(['asgard.run.error', expect.any(RelayError)]);
          }
        if (eventType !== 'acme.any') return;
        expect(answerParts().take(event)).toEqual({ parts: [{ type: 'data-acme.any', data: fact }] });
      }),
      { numRuns: 3_000 },
    );
  });

  test('does not keep its answer from going on, and from its end', async () => {
    const stage = await startRunsStage();
    try {
      const channel = await stage.channel({ id: 'odd' }, { guards });
      const sent = channel.send('Hello');
      const run = await stage.bot.run('Hello');
      run.begin();
      for (const [eventType, fact] of fc.sample(oddEvents, 1_000))
        if (eventType !== 'asgard.run.error') run.write(`data: ${JSON.stringify({ eventType, fact })}\n\n`);
      run.send(deltaOf('All is well.', 'last'));
      run.finish();
      expect((await sent)?.error).toBeUndefined();
      await isReady(channel);
      expect(allOf(channel).at(-1)).toMatch(/All is well\.$/);
    } finally {
      await stage.close();
    }
  });
});

const withChart = eventReader({ 'acme.chart': () => true } as unknown as Guards);
const factEvent = (fact: object): BotEvent => {
  const eventType = 'acme.chart' in fact ? 'acme.chart' : typeOf(fact);
  return withChart({ eventType, fact }, 'message', undefined);
};
const startOf = (messageId: string) => ({ messageStart: { message: { messageId } } });
const completeOf = (text: string, messageId = 'm1') => ({
  messageComplete: { message: { messageId, text } },
});
const CALL = { processId: 'p', callSeq: 1, toolCall: { toolName: 'clock', parameter: { zone: 'UTC' } } };
const DONE = { toolCallComplete: { ...CALL, toolCallResult: 12 } };
const ASKED = { toolCallId: 'call-1', toolName: 'clock', parameter: {} };

/** The parts that a channel shows of an answer with these facts. */
function partsOf(facts: readonly object[]): MessagePart[] {
  const { take } = answerParts();
  return facts.reduce<MessagePart[]>((parts, fact) => take(factEvent(fact)).parts ?? parts, []);
}

/** The chunks that the AI SDK gets of it. */
function chunksOf(facts: readonly object[]): AnswerChunk[] {
  const { take, end } = answerChunks();
  const taken = facts.flatMap((fact) => take(factEvent(fact)));
  return [{ type: 'start', messageMetadata: {} }, { type: 'start-step' }, ...taken, ...end()];
}

/** The parts that the AI SDK makes of chunks. */
async function partsIn(chunks: readonly UIMessageChunk[]) {
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  let parts: object[] = [];
  for await (const message of readUIMessageStream({ stream, terminateOnError: true })) parts = message.parts;
  return parts.slice(1);
}

async function expectSameInAiSdk(facts: readonly object[]): Promise<void> {
  const shown = partsOf(facts).filter((part) => part.type !== 'text' || part.text !== '');
  expect(await partsIn(chunksOf(facts))).toEqual(shown.map((part) => expect.objectContaining(part)));
}

test.each([
  ['pieces', [deltaOf('You'), deltaOf(' said')], 'You said'],
  ['pieces, then the whole', [startOf('m1'), deltaOf('You'), completeOf('You said')], 'You said'],
  [
    'pieces that the whole text corrects',
    [deltaOf('You '), deltaOf('sed'), completeOf('You said')],
    'You said',
  ],
  ['an empty text', [startOf('m1'), completeOf('')], ''],
  [
    'several messages, each a paragraph',
    [deltaOf('One', '1'), completeOf('One.', '1'), deltaOf('Two', '2'), completeOf('Two.', '2')],
    'One.\n\nTwo.',
  ],
  [
    'two messages whose pieces alternate',
    [deltaOf('O', '1'), deltaOf('T', '2'), deltaOf('ne', '1'), deltaOf('wo', '2')],
    'One\n\nTwo',
  ],
  [
    'a message that comes again from its start, as after a resumption',
    [startOf('1'), deltaOf('You', '1'), startOf('1'), deltaOf('Yo', '1'), deltaOf('u said', '1')],
    'You said',
  ],
  [
    'a message that comes again as another one',
    [deltaOf('You', '1'), startOf('1'), deltaOf('We', '1')],
    'We',
  ],
  ['a message that goes on after its end', [completeOf('One', '1'), deltaOf(' more', '1')], 'One more'],
  [
    'events of which some have no text',
    [
      { runInit: {} },
      { messageDelta: null },
      { messageDelta: { message: { text: 5 } } },
      deltaOf('You'),
      { runDone: {} },
    ],
    'You',
  ],
  ['calls of tools', [{ toolCallStart: CALL }, deltaOf('sed'), DONE, completeOf('said')], 'said'],
])('the text of an answer is made of %s, in a channel and in the AI SDK', async (_, facts, text) => {
  expect(textOf({ parts: partsOf(facts) })).toBe(text);
  await expectSameInAiSdk(facts);
});

test('the AI SDK shows what a channel shows of any answer', async () => {
  const id = fc.constantFrom('1', '2');
  const text = fc.constantFrom('a', ' b', 'ab');
  const piece = fc.tuple(text, id);
  const others = [
    ...[{ toolCallStart: CALL }, DONE, { runInit: {} }, { messageDelta: null }, { runDone: {} }],
    ...[{ 'acme.chart': { points: [1] } }, { toolCallConsent: { pendingCalls: [ASKED] } }],
  ];
  const some: fc.Arbitrary<object> = fc.oneof(
    { weight: 4, arbitrary: piece.map(([text, id]) => deltaOf(text, id)) },
    { weight: 2, arbitrary: piece.map(([text, id]) => completeOf(text, id)) },
    { weight: 1, arbitrary: fc.constantFrom<object>(...others) },
  );
  // A tool that has answered does not begin again.
  const inOrder = (facts: readonly object[]) =>
    facts.filter((fact, at) => !('toolCallStart' in fact && facts.slice(0, at).includes(DONE)));
  const answers = fc.array(some, { maxLength: 10 }).map(inOrder);
  await fc.assert(fc.asyncProperty(answers, expectSameInAiSdk), { numRuns: 300 });
});

test('a tool that is called is one part, with its input and then its output', async () => {
  const part = { type: 'dynamic-tool', toolName: 'clock', toolCallId: 'p-1', input: { zone: 'UTC' } };
  expect(partsOf([{ toolCallStart: CALL }])).toEqual([{ ...part, state: 'input-available' }]);
  const output = { ...part, state: 'output-available', output: 12 };
  expect(partsOf([{ toolCallStart: CALL }, deltaOf('It is'), DONE])).toEqual([
    output,
    { type: 'text', text: 'It is' },
  ]);
  expect(partsOf([DONE])).toEqual([output]);
  // The bot service calls it, so the page is not asked to.
  expect(chunksOf([{ toolCallStart: CALL }])[2]).toMatchObject({ providerExecuted: true, dynamic: true });
});

test('calls that wait for the user are parts, and so is an event of the application', async () => {
  const pendingCalls = [ASKED, { ...ASKED, toolCallId: 'call-2' }];
  const facts = [{ toolCallConsent: { pendingCalls } }, { 'acme.chart': { points: [1] } }];
  expect(partsOf(facts)).toMatchObject([
    { type: 'dynamic-tool', toolCallId: 'call-1', state: 'approval-requested' },
    { type: 'dynamic-tool', toolCallId: 'call-2', state: 'approval-requested' },
    { type: 'data-acme.chart', data: { 'acme.chart': { points: [1] } } },
  ]);
  await expectSameInAiSdk(facts);
});

test('a part that an event does not change stays the same object', () => {
  const { take } = answerParts();
  const [first] = take(factEvent(deltaOf('One', '1'))).parts ?? [];
  expect(take(factEvent(deltaOf('Two', '2'))).parts?.[0]).toBe(first);
});

describe('in the AI SDK', () => {
  test('a text is over when its answer is, and with its own end at the latest', () => {
    const types = (facts: readonly object[]) =>
      chunksOf(facts)
        .map(({ type }) => type)
        .slice(2);
    const whole = ['text-start', 'text-delta', 'text-end', 'finish-step', 'finish'];
    expect(types([deltaOf('You')])).toEqual(whole);
    expect(types([deltaOf('You'), completeOf('You'), { runDone: {} }])).toEqual(whole);
  });

  test('the end of an answer names its last text, to which feedback belongs', () => {
    const facts = [completeOf('One', '1'), completeOf('Two', '2')];
    expect(chunksOf(facts).at(-1)).toEqual({ type: 'finish', messageMetadata: { messageId: '2' } });
  });
});

test('a run that has failed throws what the run says', () => {
  for (const make of [partsOf, chunksOf]) {
    const fail = (error: object) => () => make([{ runError: { error } }]);
    expect(fail({ message: 'Too many steps.', code: 'STEPS' })).toThrow(
      expect.objectContaining({ message: 'Too many steps.', code: 'STEPS', status: 200 }),
    );
    expect(fail({})).toThrow(expect.objectContaining({ code: 'unexpected_response' }));
  }
});

async function all(pieces: AsyncIterable<string>): Promise<string[]> {
  const read = [];
  for await (const piece of pieces) read.push(piece);
  return read;
}

/** The text of an answer with these facts. */
function textOfFacts(...facts: readonly object[]): AsyncIterable<string> {
  const answer = async () => {
    const headers = { 'Content-Type': 'text/event-stream' };
    return new Response(facts.map((fact) => eventOf(fact)).join(''), { headers });
  };
  return testClient({ namespace: 'a', botProviderName: 'b', fetch: answer }).send('Hello').text;
}
const start = (messageId: string) => ({ messageStart: { message: { messageId } } });
const say = (text: string, messageId?: string) => ({ messageDelta: { message: { text, messageId } } });
const whole = (text: string, messageId?: string) => ({ messageComplete: { message: { text, messageId } } });

test('each piece comes once, also if the message begins again, or comes as a whole', async () => {
  const again = [start('one'), say('You', 'one'), start('one'), say('You', 'one'), say(' are', 'one')];
  expect(await all(textOfFacts(...again, whole('You are here.', 'one')))).toEqual(['You', ' are', ' here.']);
  expect(await all(textOfFacts(whole('All at once.')))).toEqual(['All at once.']);
});

test('several messages of one answer are paragraphs', async () => {
  const pieces = textOfFacts(
    say('One', '1'),
    say('.', '1'),
    whole('One.', '1'),
    say('Two', '2'),
    say('.', '2'),
  );
  expect((await all(pieces)).join('')).toBe('One.\n\nTwo.');
});

test('a text that the bot changes stays as it was read', async () => {
  expect(await all(textOfFacts(say('You'), whole('Nobody'), say(' is')))).toEqual(['You']);
});

test('an error of the run is thrown after the pieces before it', async () => {
  const pieces: string[] = [];
  const read = async () => {
    const text = textOfFacts(say('You'), { runError: { error: { message: 'No more.', code: 'broken' } } });
    for await (const piece of text) pieces.push(piece);
  };
  await expect(read()).rejects.toMatchObject({ name: 'RelayError', message: 'No more.', code: 'broken' });
  expect(pieces).toEqual(['You']);
});
