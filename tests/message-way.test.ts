import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { sectionOf } from './support/markdown.ts';
import { isFunction, member, ROOT, readSources, type SyntaxNode } from './support/sources.ts';

const architecture = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');

/** The names in code of a numbered list, up to the colon of each entry. */
function namedIn(heading: string): string[] {
  const entries = sectionOf(architecture, heading).match(/^\d+\. .*$/gm) ?? [];
  return entries.flatMap((entry) =>
    [...entry.replace(/:.*/, '').matchAll(/`([^`]+)`/g)].map(([, name = '']) => name),
  );
}

describe('docs/architecture.md', () => {
  const sources = readSources('src');
  const sourceOf = (path: string) => sources.find((source) => source.path === path);

  test('lists the stages of every route in the order of src/app.ts', () => {
    const { nodes = [], textOf = () => '' } = sourceOf('app.ts') ?? {};
    const uses = nodes.filter((node) => member(node, 'callee') && /^app\.use\(/.test(textOf(node)));
    const stages = uses.flatMap((node) => stagesIn(textOf(node)));
    expect(namedIn('### Around every route')).toEqual(stages);
  });

  test('lists the steps of a message in the order of src/routes/message.ts', () => {
    const route = sourceOf('routes/message.ts');
    if (!route) throw new Error('there is no route of a message');
    expect(namedIn('### In the route')).toEqual(stepsOf(route.nodes, 'message'));
  });

  test('lists the steps of an ordinary operation in the order of src/routes/operations.ts', () => {
    const route = sourceOf('routes/operations.ts');
    if (!route) throw new Error('there is no route of operations');
    expect(namedIn('### An ordinary operation')).toEqual(stepsOf(route.nodes, 'operate'));
  });
});

/** The stages that a call of `app.use` adds: one, or those of `inOrder`, each in a line of its own. */
function stagesIn(use: string): string[] {
  const [, first = ''] = /^app\.use\(\s*(\w+)\(/.exec(use) ?? [];
  if (first !== 'inOrder') return first === '' ? [] : [first];
  return [...use.matchAll(/^ +(?:[\w.]+ && )?(?!inOrder)(\w+)\(/gm)].map(([, name = '']) => name);
}

/** Values of the route itself, of the language and of Node.js. Calls of their methods are no steps. */
const NO_STEPS = /^(stop|signal|releases|release|res|Object|input)\b|^\.(finally|then)$/;
/** Functions that only make or read a name. */
const NAMES = ['botName', 'clientAddress', 'conversation'];

/**
 * The calls of the function `route` in the order in which they are made. A call of a function of the same file is
 * replaced by the calls in it. Calls in callbacks are left out, since they are made later.
 */
function stepsOf(nodes: readonly SyntaxNode[], route: string): string[] {
  const own = new Map(
    nodes
      .filter((node) => node.type === 'FunctionDeclaration')
      .map((node) => [nameOf(member(node, 'identifier')), node]),
  );
  const top = nodes.find(
    (node) => node.type === 'FunctionExpression' && nameOf(member(node, 'identifier')) === route,
  );
  const steps = (node: SyntaxNode | undefined): string[] =>
    callsIn(member(node, 'body')).flatMap((name) => (own.has(name) ? steps(own.get(name)) : [name]));
  return steps(top)
    .filter((name) => !NO_STEPS.test(name) && !NAMES.includes(name))
    .map((name) => name.replace(/^route\./, ''));
}

/** The names of the functions that a function calls. A call in the arguments of another call comes first. */
function callsIn(body: unknown): string[] {
  if (Array.isArray(body)) return body.flatMap(callsIn);
  if (typeof body !== 'object' || body === null) return [];
  if ('type' in body && isFunction(body as SyntaxNode)) return [];
  const below = Object.values(body).flatMap(callsIn);
  const callee =
    'type' in body && body.type === 'CallExpression' ? member(body as SyntaxNode, 'callee') : undefined;
  return callee ? [...below, nameOf(callee)] : below;
}

/** The text `a.b.c` of such an expression, or of `a?.b.c`. */
function nameOf(node: SyntaxNode | undefined): string {
  if (node?.type === 'Identifier') return String(node.value);
  if (node?.type === 'OptionalChainingExpression') return nameOf(member(node, 'base'));
  if (node?.type !== 'MemberExpression') return '';
  return `${nameOf(member(node, 'object'))}.${nameOf(member(node, 'property'))}`;
}
