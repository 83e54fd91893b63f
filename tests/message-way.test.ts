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

describe('the way of a message', () => {
  const sources = readSources('src');
  const sourceOf = (path: string) => sources.find((source) => source.path === path);

  test('passes what the application has for every route, in the order of the document', () => {
    const { nodes = [], textOf = () => '' } = sourceOf('app.ts') ?? {};
    const uses = nodes.filter((node) => member(node, 'callee') && /^app\.use\(/.test(textOf(node)));
    const stages = uses.flatMap((node) => textOf(node).match(/^app\.use\((\w+)\(/)?.[1] ?? []);
    expect(namedIn('### Around every route')).toEqual(stages);
  });

  test('has the steps of the route, in the order of the document', () => {
    const route = sourceOf('routes/message.ts');
    if (!route) throw new Error('there is no route of a message');
    expect(namedIn('### In the route')).toEqual(stepsOf(route.nodes));
  });
});

/** Values of the route itself, of the language and of Node.js: calls of their methods are no steps. */
const NO_STEPS = /^(stop|signal|releases|release|res|Object)\b/;
/** What only names something. */
const NAMES = ['botName', 'clientAddress'];

/**
 * The calls of the function `message` in the order in which they are made, and those of the file's own functions in
 * place of their calls. What a callback calls is left out: its time comes later.
 */
function stepsOf(nodes: readonly SyntaxNode[]): string[] {
  const own = new Map(
    nodes
      .filter((node) => node.type === 'FunctionDeclaration')
      .map((node) => [nameOf(member(node, 'identifier')), node]),
  );
  const message = nodes.find(
    (node) => node.type === 'FunctionExpression' && nameOf(member(node, 'identifier')) === 'message',
  );
  const steps = (node: SyntaxNode | undefined): string[] =>
    callsIn(member(node, 'body')).flatMap((name) => (own.has(name) ? steps(own.get(name)) : [name]));
  return steps(message)
    .filter((name) => !NO_STEPS.test(name) && !NAMES.includes(name))
    .map((name) => name.replace(/^route\./, ''));
}

/** The names of what a function calls. A call within another one's arguments is made before it. */
function callsIn(body: unknown): string[] {
  if (Array.isArray(body)) return body.flatMap(callsIn);
  if (typeof body !== 'object' || body === null) return [];
  if ('type' in body && isFunction(body as SyntaxNode)) return [];
  const below = Object.values(body).flatMap(callsIn);
  const callee =
    'type' in body && body.type === 'CallExpression' ? member(body as SyntaxNode, 'callee') : undefined;
  return callee ? [...below, nameOf(callee)] : below;
}

/** `a.b.c` of an expression that is written so. */
function nameOf(node: SyntaxNode | undefined): string {
  if (node?.type === 'Identifier') return String(node.value);
  if (node?.type !== 'MemberExpression') return '';
  return `${nameOf(member(node, 'object'))}.${nameOf(member(node, 'property'))}`;
}
