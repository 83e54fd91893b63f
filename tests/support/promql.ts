import { parser } from '@prometheus-io/lezer-promql';

/** A selection of samples in a query. */
export interface Selection {
  readonly metric: string;
  /** The labels that it is filtered by. */
  readonly labels: readonly string[];
}

export interface Query {
  readonly selections: readonly Selection[];
  /** The labels by which results are grouped, joined or computed. */
  readonly grouping: readonly string[];
}

/**
 * Reads a query with Prometheus's own grammar.
 * @throws Error if it is not PromQL
 */
export function readQuery(text: string): Query {
  const selections: { metric: string; labels: string[] }[] = [];
  const grouping: string[] = [];
  const cursor = parser.parse(text).cursor();
  do {
    const { name, from, to } = cursor;
    if (cursor.type.isError) throw new Error(`not PromQL at ${from}: ${text}`);
    const inMatcher = cursor.node.parent?.name === 'UnquotedLabelMatcher';
    if (name === 'VectorSelector') selections.push({ metric: '', labels: [] });
    if (name === 'Identifier') last(selections, text).metric = text.slice(from, to);
    if (name === 'LabelName' && inMatcher) last(selections, text).labels.push(text.slice(from, to));
    if (name === 'LabelName' && !inMatcher) grouping.push(text.slice(from, to));
  } while (cursor.next());
  return { selections, grouping };
}

function last<T>(list: readonly T[], text: string): T {
  const item = list.at(-1);
  if (item === undefined) throw new Error(`a label or name that belongs to nothing: ${text}`);
  return item;
}
