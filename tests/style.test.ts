import { describe, expect, test } from '@jest/globals';
import { functionsOf, member, readSources, type Source, type SyntaxNode } from './support/sources.ts';

const MAX_LINES = 250;
const MAX_MEDIAN = 80;
const MAX_FUNCTION_LINES = 49;
const MAX_PARAMETERS = 3;

const sources = readSources('src');
const tests = readSources('tests');
const linesOf = ({ text }: Source) => text.split('\n').length - 1;
const pathsWhere = (holds: (node: SyntaxNode) => boolean) =>
  sources.filter(({ nodes }) => nodes.some(holds)).map(({ path }) => path);
/** The functions for which `holds` is true, as `path: name`. */
const functionsWhere = (holds: (shape: ReturnType<typeof functionsOf>[number]) => boolean) =>
  sources.flatMap((source) =>
    functionsOf(source)
      .filter(holds)
      .map(({ name }) => `${source.path}: ${name}`),
  );
const isAny = (node: SyntaxNode | undefined) => node?.type === 'TsKeywordType' && node.kind === 'any';

describe('a file', () => {
  test('has at most 250 lines, and half of the files have fewer than 80', () => {
    expect(sources.filter((source) => linesOf(source) > MAX_LINES).map(({ path }) => path)).toEqual([]);
    const lengths = sources.map(linesOf).sort((a, b) => a - b);
    expect(lengths[Math.floor(lengths.length / 2)]).toBeLessThan(MAX_MEDIAN);
  });

  test('has a name in kebab case, and so has its folder', () => {
    const kebab = /^([a-z0-9]+(-[a-z0-9]+)*\/)*[a-z0-9]+(-[a-z0-9]+)*\.(ts|js)$/;
    expect(sources.map(({ path }) => path).filter((path) => !kebab.test(path))).toEqual([]);
  });

  test('has no default export', () => {
    expect(pathsWhere(({ type }) => /^ExportDefault/.test(type))).toEqual([]);
    expect(sources.filter(({ text }) => /\bas default\b/.test(text))).toEqual([]);
  });
});

describe('a function', () => {
  test('is found with its lines and parameters, whatever its form', () => {
    const shapes = sources.flatMap(functionsOf);
    expect(shapes.length).toBeGreaterThan(500);
    expect(shapes).toContainEqual({ name: 'problemHeaders', lines: 4, parameters: ['{ options }: Problem'] });
    // A constructor, and an arrow function.
    const problem = sources.filter(({ path }) => path === 'errors.ts').flatMap(functionsOf);
    expect(problem.find(({ name }) => name === 'constructor')?.parameters).toHaveLength(3);
    expect(shapes.some(({ name }) => name === 'a function without a name')).toBe(true);
  });

  test('has fewer than 50 lines, with the functions in it', () => {
    expect(functionsWhere(({ lines }) => lines > MAX_FUNCTION_LINES)).toEqual([]);
  });

  test('has at most 3 parameters, except an error handler of Express, which has 4', () => {
    const isErrorHandler = (parameters: readonly string[]) =>
      parameters.length === 4 && /^_?next\b/.test(parameters[3] ?? '');
    const found = functionsWhere(
      ({ parameters }) => parameters.length > MAX_PARAMETERS && !isErrorHandler(parameters),
    );
    expect(found).toEqual([]);
  });
});

describe('an exported function', () => {
  test('has a docstring, except in the demo', () => {
    const found = sources
      .filter(({ path }) => !path.startsWith('demo/'))
      .flatMap(({ path, text }) =>
        [...text.matchAll(/(.*)\nexport (?:async )?function\*? (\w+)/g)]
          .filter(([, before = '']) => !before.endsWith('*/'))
          .map(([, , name]) => `${path}: ${name}`),
      );
    expect(found).toEqual([]);
  });
});

describe('a comment', () => {
  test('has at most 3 lines, unless it is the docstring of an export', () => {
    const others = ['tests', 'bench', 'build'].flatMap((top) => readSources(top));
    const tooLong =
      /(?:^ *\/\/.*\n){4,}|^ *\/\*(?!\*)(?:.*\n){3}|^\/\*\*\n(?: \*(?!\/).*\n){4,} \*\/\n(?!export)/gm;
    const long = [...sources, ...others].flatMap(({ path, text }) =>
      [...text.matchAll(tooLong)].map(([comment]) => ({
        path,
        comment,
      })),
    );
    expect(long).toEqual([]);
  });
});

describe('a title of a test', () => {
  test('carries no number of a case', () => {
    const numbered = tests.flatMap(({ path, text }) =>
      [...text.matchAll(/^.* \([A-Z]{1,2}\d{1,2}(?:\)|, ).*$/gm)].map(([line]) => `${path}: ${line}`),
    );
    expect(numbered).toEqual([]);
  });
});

describe('a type', () => {
  test('is never any', () => {
    expect(pathsWhere(isAny)).toEqual([]);
  });

  test('is never cast through unknown', () => {
    const found = pathsWhere(
      (node) => node.type === 'TsAsExpression' && member(node, 'expression')?.type === 'TsAsExpression',
    );
    expect(found).toEqual([]);
  });
});
