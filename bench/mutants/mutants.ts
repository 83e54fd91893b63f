import ts from 'typescript-6';

/** A small change of a source text: `text` instead of what stands from `at` to `end`. */
export interface Mutant {
  readonly at: number;
  readonly end: number;
  readonly text: string;
  /** Whether what is changed is an expression; else it is a statement or a body. */
  readonly expression: boolean;
}

export type Edit = Pick<Mutant, 'at' | 'end' | 'text'>;

const SWAPPED: Readonly<Record<string, string>> = {
  '===': '!==',
  '!==': '===',
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '+=': '-=',
  '-=': '+=',
  '&&': '||',
  '||': '&&',
  '??': '&&',
};

/** All mutants of a source text, in its order. */
export function mutantsOf(source: string): Mutant[] {
  const file = ts.createSourceFile('a.ts', source, ts.ScriptTarget.Latest, true);
  const found: Mutant[] = [];
  const add = (node: ts.Node, text: string, expression = true) =>
    found.push({ at: node.getStart(), end: node.end, text, expression });
  const visit = (node: ts.Node): void => {
    // Types do not run.
    if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node)) return;
    if (isCondition(node)) add(node, `!(${node.getText()})`);
    if (ts.isBinaryExpression(node)) {
      const swapped = SWAPPED[node.operatorToken.getText()];
      if (swapped) add(node, `(${node.left.getText()}) ${swapped} (${node.right.getText()})`);
    }
    if (ts.isNumericLiteral(node) && !isName(node)) add(node, String(+node.text + 1));
    if (node.kind === ts.SyntaxKind.TrueKeyword) add(node, 'false');
    if (node.kind === ts.SyntaxKind.FalseKeyword) add(node, 'true');
    if (ts.isExpressionStatement(node) || ts.isThrowStatement(node)) add(node, '{}', false);
    if (ts.isFunctionLike(node) && 'body' in node && node.body) {
      if (ts.isBlock(node.body)) add(node.body, '{}', false);
      else add(node.body, 'undefined');
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

const isName = (node: ts.Node) => ts.isPropertyAssignment(node.parent) && node.parent.name === node;

/** Whether `node` decides what runs next. Of `a === b` the swapped operator is the same. */
function isCondition(node: ts.Node): boolean {
  const { parent } = node;
  if (!parent || (ts.isBinaryExpression(node) && /^[!=]==$/.test(node.operatorToken.getText()))) return false;
  return (
    (ts.isConditionalExpression(parent) && parent.condition === node) ||
    ((ts.isIfStatement(parent) || ts.isWhileStatement(parent)) && parent.expression === node)
  );
}

/** The edits after which a text says `ran(id)` before it runs what a mutant changes. */
export function probes(mutants: readonly (Mutant & { readonly id: number })[]): Edit[] {
  const edits = mutants.flatMap(({ id, at, end, expression }) => {
    const call = `globalThis.ran?.(${id})`;
    const [before, after] = expression ? [`(${call}, `, ')'] : [`{ ${call}; `, ' }'];
    return [
      { at, end: at, text: before, order: [at, 1, -end, id] },
      { at: end, end, text: after, order: [end, 0, -at, -id] },
    ];
  });
  return edits.sort((one, other) => compare(one.order, other.order)).map(({ order: _, ...edit }) => edit);
}

function compare(one: readonly number[], other: readonly number[]): number {
  return one.map((value, at) => value - (other[at] as number)).find((difference) => difference !== 0) ?? 0;
}

/** `count` of `all`, in a random order that is always the same. */
export function sample<T>(all: readonly T[], count: number): T[] {
  let state = 32;
  const random = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
  return all
    .map((value) => ({ value, rank: random() }))
    .sort((one, other) => one.rank - other.rank)
    .slice(0, count)
    .map(({ value }) => value);
}
