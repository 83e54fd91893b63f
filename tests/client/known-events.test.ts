import { describe, expect, test } from '@jest/globals';
import { type Guards, RelayError } from '../../src/client/session/bot-client.ts';
import { eventReader, readText } from '../../src/client/transport/known-events.ts';
import { ANY, FACTS, pathsIn, withOther } from '../harness/service/event-facts.ts';

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
