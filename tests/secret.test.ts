import { createHash } from 'node:crypto';
import { format, inspect } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { createLogger } from '../src/logger.ts';
import { secret } from '../src/secret.ts';

const VALUE = 'canary-api-key-5b1f0c';
const MASK = '[secret]';
const hidden = secret(VALUE);

function logged(write: (logger: ReturnType<typeof createLogger>) => void): string {
  const lines: string[] = [];
  write(createLogger('trace', { write: (line) => void lines.push(line) }));
  expect(lines.length).toBeGreaterThan(0);
  return lines.join('');
}

describe('a secret', () => {
  test('is given by open() only', () => {
    expect(hidden.open()).toBe(VALUE);
  });

  test('has the first 8 hex digits of its SHA-256 as fingerprint', () => {
    expect(hidden.fingerprint).toBe(createHash('sha256').update(VALUE).digest('hex').slice(0, 8));
    expect(hidden.fingerprint).toMatch(/^[0-9a-f]{8}$/);
    expect(secret('abc').fingerprint).toBe('ba7816bf');
  });

  const asText: [way: string, text: () => string][] = [
    ['a template string', () => `${hidden}`],
    ['String()', () => String(hidden)],
    ['toString()', () => hidden.toString()],
    // biome-ignore lint/style/useTemplate: the operator is tested
    ['the operator +', () => '' + hidden],
    ['join()', () => [hidden].join()],
    ['JSON.stringify', () => JSON.parse(JSON.stringify(hidden))],
    ['JSON.stringify of an object around it', () => JSON.parse(JSON.stringify({ a: { b: hidden } })).a.b],
    ['util.inspect', () => inspect(hidden)],
    ['util.inspect that shows what is hidden', () => inspect(hidden, { showHidden: true, depth: 9 })],
    ['util.format with %s', () => format('%s', hidden)],
    ['util.format with %o', () => format('%o', hidden)],
    ['util.format with %O', () => format('%O', hidden)],
    ['util.format with %j', () => JSON.parse(format('%j', hidden))],
    ['console.log', () => format(hidden)],
    ['the message of an error', () => new Error(`${hidden}`).message],
  ];
  test.each(asText)('is masked by %s', (_way, text) => {
    expect(text()).toBe(MASK);
  });

  const asPart: [way: string, text: () => string][] = [
    ['inside other things', () => inspect({ a: [{ b: new Map([['c', hidden]]) }] }, { depth: null })],
    ['inside other things with showHidden', () => inspect({ a: [hidden] }, { depth: 9, showHidden: true })],
    [
      'in an error that carries it',
      () => inspect(Object.assign(new Error('x'), { key: hidden }), { depth: 9 }),
    ],
    ['in the cause of an error', () => inspect(new Error('x', { cause: { hidden } }), { depth: 9 })],
    ['in a log line', () => logged((logger) => logger.info({ hidden, deep: { list: [hidden] } }, 'x'))],
    ['in a log message', () => logged((logger) => logger.info('%s %o %j', hidden, hidden, hidden))],
    [
      'in a logged error',
      () => logged((logger) => logger.error({ err: Object.assign(new Error(`${hidden}`), { hidden }) })),
    ],
  ];
  test.each(asPart)('is masked %s', (_way, text) => {
    expect(text()).not.toContain(VALUE);
    expect(text()).toContain(MASK);
  });

  test('is in no enumerable property and in no copy', () => {
    expect(Object.keys(hidden)).toEqual(['fingerprint']);
    expect(Object.entries({ ...hidden })).toEqual([['fingerprint', hidden.fingerprint]]);
    expect(structuredClone({ hidden })).toEqual({ hidden: { fingerprint: hidden.fingerprint } });
    expect(inspect({ ...hidden }, { showHidden: true })).not.toContain(VALUE);
  });

  test('is in no property at all, and cannot be made to show itself', () => {
    const held = Reflect.ownKeys(hidden).map(
      (name) => (hidden as unknown as Record<PropertyKey, unknown>)[name],
    );
    expect(held.filter((value) => typeof value === 'string')).toEqual([hidden.fingerprint]);
    expect(() => Object.assign(hidden, { toString: () => VALUE })).toThrow(
      expect.objectContaining({ name: 'TypeError' }),
    );
    expect(Object.isFrozen(hidden)).toBe(true);
  });
});
