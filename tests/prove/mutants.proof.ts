import { expect, test } from '@jest/globals';
import { transformSync } from '@swc/core';
import { type Edit, mutantsOf, probes, sample } from '../../bench/mutants/mutants.ts';

const SOURCE = `
interface Limits { readonly max: 3 }
const limits: Limits = { max: 3 };
export function grows(by: number, seen: number[]): boolean {
  if (by > limits.max) seen.push(by);
  return by === 0 ? false : seen.some((one) => one > 9);
}`;

const edited = (edits: readonly Edit[]) =>
  edits.reduceRight((text, { at, end, text: other }) => text.slice(0, at) + other + text.slice(end), SOURCE);
const compiled = (source: string) =>
  transformSync(source, { jsc: { parser: { syntax: 'typescript' }, target: 'es2024' } }).code;

test('a mutant changes a number, a boolean, a condition, an operator, a statement or what a function does', () => {
  const changes = mutantsOf(SOURCE).map(({ at, end, text }) => `${SOURCE.slice(at, end)} → ${text}`);
  expect(changes.map((change) => change.replace(/^\{\n[\s\S]*\n\}/, '{ body }'))).toEqual([
    '3 → 4',
    '{ body } → {}',
    'by > limits.max → !(by > limits.max)',
    'by > limits.max → (by) >= (limits.max)',
    'seen.push(by); → {}',
    'by === 0 → (by) !== (0)',
    '0 → 1',
    'false → true',
    'one > 9 → undefined',
    'one > 9 → (one) >= (9)',
    '9 → 10',
  ]);
});

test('each mutant can be compiled', () => {
  for (const mutant of mutantsOf(SOURCE)) expect(compiled(edited([mutant]))).not.toBe(compiled(SOURCE));
});

test('probes say which mutants have run, and change nothing else', async () => {
  const ran = new Set<number>();
  Object.assign(globalThis, { ran: (id: number) => ran.add(id) });
  const code = compiled(edited(probes(mutantsOf(SOURCE).map((mutant, id) => ({ ...mutant, id })))));
  const grows = new Function(`${code.replace('export ', '')}; return grows;`)();
  expect([...ran]).toEqual([0]);
  expect(grows(2, [10])).toBe(true);
  expect([...ran].sort((one, other) => one - other)).toEqual([0, 1, 2, 3, 5, 6, 8, 9, 10]);
  expect(grows(0, [])).toBe(false);
  expect(ran.has(7)).toBe(true);
  Reflect.deleteProperty(globalThis, 'ran');
});

test('a sample is the same each time, and has no value twice', () => {
  const all = Array.from({ length: 1_000 }, (_, index) => index);
  expect(sample(all, 75)).toEqual(sample(all, 75));
  expect(new Set(sample(all, 75)).size).toBe(75);
});
