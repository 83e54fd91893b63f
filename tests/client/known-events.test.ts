import { describe, expect, test } from '@jest/globals';
import { readFact } from '../../src/client/answer-text.ts';
import { type Facts, type Guards, RelayError } from '../../src/client/bot-client.ts';
import { eventReader } from '../../src/client/known-events.ts';

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
/** Members that may be missing, or null. */
const OPTIONAL = [
  ...['messageId', 'toolsetName', 'blobIds', 'blobIds.0'],
  ...['runError.error.code', 'messageUser.text'],
];
/** Members of any type. */
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

  test('asgard.run.error makes the answer fail also if its shape is not known', () => {
    const failed = (fact: unknown) =>
      readFact(read({ eventType: 'asgard.run.error', fact }, 'message', undefined));
    for (const fact of [null, { runError: null }, { runError: { error: { message: 5 } } }])
      expect(() => failed(fact)).toThrow(
        new RelayError('The run of the bot failed.', { code: '', status: 200 }),
      );
    for (const code of [null, 402])
      expect(() => failed({ runError: { error: { message: 'No.', code } } })).toThrow('No.');
  });
});
