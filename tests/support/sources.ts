import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from '@swc/core';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A node of the syntax tree: what all kinds of them have, and members that depend on the kind. */
export interface SyntaxNode {
  readonly type: string;
  readonly span: { readonly start: number; readonly end: number };
  readonly [member: string]: unknown;
}

export interface Import {
  /** A path such as `relay/message/carry-stream.ts` below its top folder, or the name of a package. */
  readonly target: string;
  /** True if nothing of it is left once the types are gone. */
  readonly typesOnly: boolean;
  /** True if it is loaded when the code comes to it, and not together with the file. */
  readonly late: boolean;
}

export interface Source {
  /** Below the top folder. */
  readonly path: string;
  readonly text: string;
  /** Every node of its syntax tree, in the order of the text. */
  readonly nodes: readonly SyntaxNode[];
  readonly imports: readonly Import[];
  /** The text of one of its nodes. */
  textOf(node: SyntaxNode): string;
}

/** The TypeScript files below the folder `top` of the repository, parsed. */
export function readSources(top: string): Source[] {
  const folder = join(ROOT, top);
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .sort()
    .map((path) => readSource(folder, path));
}

function readSource(folder: string, path: string): Source {
  const text = readFileSync(join(folder, path), 'utf8');
  // A first statement of our own: spans count bytes from the first one, and a comment at the top is none.
  const bytes = Buffer.from(`0;${text}`);
  const tree = parseSync(bytes.toString(), { syntax: 'typescript', target: 'es2024' });
  const nodes = nodesBelow(tree);
  const imports = nodes.flatMap((node): Import[] => {
    const name = importedBy(node);
    if (name === undefined) return [];
    const target = name.startsWith('.') ? relative(folder, join(folder, dirname(path), name)) : name;
    return [{ target, typesOnly: isTypesOnly(node), late: node.type === 'CallExpression' }];
  });
  const textOf = ({ span }: SyntaxNode) =>
    bytes.subarray(span.start - tree.span.start, span.end - tree.span.start).toString();
  return { path, text, nodes, imports, textOf };
}

/** The node, and all that are below it, in the order of the text. */
export function nodesBelow(top: unknown): SyntaxNode[] {
  if (Array.isArray(top)) return top.flatMap(nodesBelow);
  if (typeof top !== 'object' || top === null) return [];
  const below = Object.values(top).flatMap(nodesBelow);
  return 'type' in top && 'span' in top ? [top as SyntaxNode, ...below] : below;
}

/** The member `name` of a node, where it is a node, too. */
export function member(node: SyntaxNode | undefined, name: string): SyntaxNode | undefined {
  const value = node?.[name];
  return typeof value === 'object' && value !== null ? (value as SyntaxNode) : undefined;
}

function importedBy(node: SyntaxNode): string | undefined {
  if (/^(Import|ExportNamed|ExportAll)Declaration$/.test(node.type))
    return member(node, 'source')?.value as string | undefined;
  if (node.type === 'TsImportType') return member(node, 'argument')?.value as string;
  if (node.type !== 'CallExpression' || member(node, 'callee')?.type !== 'Import') return undefined;
  const [argument] = node.arguments as { expression: SyntaxNode }[];
  if (argument?.expression.type !== 'StringLiteral')
    throw new Error('an import() of what is not written out');
  return argument.expression.value as string;
}

/** `import { type A }` counts as an import of a value: its file is loaded. */
function isTypesOnly(node: SyntaxNode): boolean {
  return node.type === 'TsImportType' || node.typeOnly === true;
}

/** What a function looks like from outside. */
export interface FunctionShape {
  readonly name: string;
  /** From its first line to its last, with those of the functions in it. */
  readonly lines: number;
  /** As they are written. */
  readonly parameters: readonly string[];
}

const FUNCTIONS =
  /^(FunctionDeclaration|FunctionExpression|ArrowFunctionExpression|ClassMethod|PrivateMethod|Constructor|MethodProperty|GetterProperty|SetterProperty)$/;

export function isFunction({ type }: SyntaxNode): boolean {
  return FUNCTIONS.test(type);
}

/** All functions of a source, those within others, too. */
export function functionsOf({ nodes, textOf }: Source): FunctionShape[] {
  return nodes.filter(isFunction).map((node) => {
    const parameters = ((member(node, 'function') ?? node).params ?? []) as SyntaxNode[];
    const name = (member(node, 'identifier') ?? member(node, 'key'))?.value;
    return {
      name: String(name ?? 'a function without a name'),
      lines: textOf(node).split('\n').length,
      // An arrow function has patterns, the others have parameters around them.
      parameters: parameters.map((one) => textOf(one)),
    };
  });
}

/** The package that an import such as `redis` or `@scope/name/part` is of. */
export function packageOf(target: string): string {
  return target.match(/^(@[^/]+\/)?[^/]+/)?.[0] ?? '';
}
