import { member, readSources, type Source, type SyntaxNode } from './sources.ts';

/** What pino itself writes into every line. */
const OF_EVERY_LINE = ['level', 'time', 'msg'];
const LOGGER = /(^|\.)(logger|root|lines)$/;
const METHOD = /^(trace|debug|info|warn|error|fatal|child)$/;

/** What the relay logs: the names of all fields, and all messages that are written out. */
export function logged(): { readonly fields: readonly string[]; readonly messages: readonly string[] } {
  const sources = readSources('src');
  const fields = new Set(OF_EVERY_LINE);
  const messages = new Set<string>();
  for (const source of sources) {
    for (const node of source.nodes.filter((one) => isLogCall(source, one))) {
      const values = (node.arguments as { expression: SyntaxNode }[]).map(({ expression }) => expression);
      const message = values.at(-1);
      if (message?.type === 'StringLiteral') messages.add(String(message.value));
      // A single value that is no object is the message.
      const [first] = values;
      if (!first || (values.length === 1 && first.type !== 'ObjectExpression')) continue;
      for (const name of fieldsOf(first, { source, sources })) fields.add(name);
    }
  }
  return { fields: [...fields], messages: [...messages] };
}

function isLogCall({ textOf }: Source, node: SyntaxNode): boolean {
  const callee = node.type === 'CallExpression' ? member(node, 'callee') : undefined;
  if (callee?.type !== 'MemberExpression') return false;
  const [object, property] = [member(callee, 'object'), member(callee, 'property')];
  if (!object || !property || !LOGGER.test(textOf(object))) return false;
  return property.type === 'Computed' || METHOD.test(textOf(property));
}

interface Place {
  readonly source: Source;
  readonly sources: readonly Source[];
}

/** The names of the members of an object, or of what a name or a call stands for. */
function fieldsOf(value: SyntaxNode | undefined, place: Place): string[] {
  switch (value?.type) {
    case 'ObjectExpression':
      return (value.properties as SyntaxNode[]).flatMap((property) => {
        if (property.type === 'SpreadElement') return fieldsOf(member(property, 'arguments'), place);
        return nameOf(member(property, 'key') ?? property);
      });
    case 'ParenthesisExpression':
      return fieldsOf(member(value, 'expression'), place);
    case 'ArrowFunctionExpression':
      return fieldsOf(member(value, 'body'), place);
    case 'Identifier':
      return resolved(nameOf(value), place);
    case 'CallExpression':
      return resolved(nameOf(member(value, 'callee')), place);
    default:
      throw new Error(`${place.source.path} logs what this test cannot read: ${value?.type}`);
  }
}

/** The fields of the object that is called `name` in this file, or that a function of this name returns in any. */
function resolved(name: string, { source, sources }: Place): string[] {
  const here = declaredIn(source, name).flatMap((value) => fieldsOf(value, { source, sources }));
  const members = [...here, ...membersOf(typeOf(name, source), source)];
  const fields =
    members.length > 0
      ? members
      : sources.flatMap((other) =>
          functionsIn(other, name).flatMap((value) => fieldsOf(value, { source: other, sources })),
        );
  if (fields.length === 0) throw new Error(`${source.path} logs ${name}, which this test cannot find`);
  return fields;
}

/** The values of the variables that are called `name`. */
function declaredIn({ nodes }: Source, name: string): SyntaxNode[] {
  return nodes.flatMap((node) => {
    const isIt = node.type === 'VariableDeclarator' && nameOf(member(node, 'id')) === name;
    return isIt ? (member(node, 'init') ?? []) : [];
  });
}

/** The functions that an object has as its member `name`. */
function functionsIn({ nodes }: Source, name: string): SyntaxNode[] {
  const objects = nodes.filter(({ type }) => type === 'ObjectExpression');
  const properties = objects.flatMap((node) => node.properties as SyntaxNode[]);
  return properties.flatMap((property) => {
    const value = member(property, 'value');
    const isIt = nameOf(member(property, 'key')) === name;
    return isIt && value?.type === 'ArrowFunctionExpression' ? value : [];
  });
}

/** The name of the type that a parameter `name` has. */
function typeOf(name: string, { nodes }: Source): string {
  const typed = nodes.find(
    (node) => node.type === 'Identifier' && nameOf(node) === name && member(node, 'typeAnnotation'),
  );
  const type = member(member(typed, 'typeAnnotation'), 'typeAnnotation');
  return nameOf(member(type, 'typeName'));
}

/** The names of the members of an interface. */
function membersOf(name: string, { nodes }: Source): string[] {
  const found = nodes.find(
    (node) => node.type === 'TsInterfaceDeclaration' && nameOf(member(node, 'id')) === name,
  );
  const members = (member(found, 'body')?.body ?? []) as SyntaxNode[];
  return members.map((one) => nameOf(member(one, 'key')));
}

function nameOf(node: SyntaxNode | undefined): string {
  return String(node?.value ?? '');
}
