import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from '@swc/core';

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** A node of the syntax tree. Its other members depend on its type. */
export interface SyntaxNode {
  readonly type: string;
  readonly span: { readonly start: number; readonly end: number };
  readonly [member: string]: unknown;
}

export interface Import {
  /** A path such as `relay/message/carry-stream.ts` below its top folder, or the name of a package. */
  readonly target: string;
  /** True if it imports only types. */
  readonly typesOnly: boolean;
  /** True for `import()`, which loads the module when it is called. */
  readonly late: boolean;
}

export interface Source {
  /** Its path below the top folder. */
  readonly path: string;
  readonly text: string;
  /** Every node of its syntax tree, in the order of the text. */
  readonly nodes: readonly SyntaxNode[];
  readonly imports: readonly Import[];
  /** The text of one of its nodes. */
  textOf(node: SyntaxNode): string;
}

/** The files below the folder `top` of the repository whose names end with `ending`, parsed. */
export function readSources(top: string, ending = '.ts'): Source[] {
  const folder = join(ROOT, top);
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending) && !name.includes('node_modules'))
    .sort()
    .map((path) => readSource(folder, path));
}

function readSource(folder: string, path: string): Source {
  const text = readFileSync(join(folder, path), 'utf8');
  // Spans count from the first statement, not from a comment above it. So a first statement is added.
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

/** The node and all nodes below it, in the order of the text. */
function nodesBelow(top: unknown): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  const visit = (one: unknown) => {
    if (typeof one !== 'object' || one === null) return;
    if (!Array.isArray(one) && 'type' in one && 'span' in one) found.push(one as SyntaxNode);
    for (const below of Object.values(one)) visit(below);
  };
  visit(top);
  return found;
}

/** The member `name` of a node, if it is a node itself. */
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

/** The package of an import such as `redis` or `@scope/name/part`. */
export function packageOf(target: string): string {
  return target.match(/^(@[^/]+\/)?[^/]+/)?.[0] ?? '';
}
