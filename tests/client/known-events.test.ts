import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { answerChunks } from '../../src/client/ai-sdk/answer-chunks.ts';
import { answerParts } from '../../src/client/channel/answer-parts.ts';
import { type Facts, type Guards, RelayError } from '../../src/client/session/bot-client.ts';
import { eventReader, readText } from '../../src/client/transport/known-events.ts';
import { allOf, isReady, refuseUnhandledRejections, startRunsStage } from '../harness/clients/channels.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';

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

refuseUnhandledRejections();

/** Members that may be missing, or null. */
const OPTIONAL = [
  ...['messageId', 'toolsetName', 'blobIds', 'blobIds.0'],
  ...['runError.error.code', 'messageUser.text'],
];
const read = eventReader();
const eventOf = (eventType: string, fact: unknown) => read({ eventType, fact }, 'message', undefined);
const isKnown = (eventType: string, fact: unknown) => eventOf(eventType, fact).known;
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
        const rest = eventOf(eventType, withOther(fact, whole, undefined)).fact;
        expect(eventOf(eventType, withOther(fact, path, 5n)).fact).toEqual(rest);
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
