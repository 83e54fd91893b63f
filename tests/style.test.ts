import { expect, test } from '@jest/globals';
import { member, readSources } from './harness/documents/sources.ts';

// The linter holds the other rules of style: biome.json.
const sources = readSources('src');

test('an exported function has a docstring', () => {
  const found = sources.flatMap(({ path, text }) =>
    [...text.matchAll(/(.*)\nexport (?:async )?function\*? (\w+)/g)]
      .filter(([, before = '']) => !before.endsWith('*/'))
      .map(([, , name]) => `${path}: ${name}`),
  );
  expect(found).toEqual([]);
});

test('a type is never cast through unknown', () => {
  const found = sources.filter(({ nodes }) =>
    nodes.some(
      (node) => node.type === 'TsAsExpression' && member(node, 'expression')?.type === 'TsAsExpression',
    ),
  );
  expect(found.map(({ path }) => path)).toEqual([]);
});
