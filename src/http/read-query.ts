import { Problem } from '../errors.ts';

/** One parameter that a path takes in its query. */
export interface QueryParameter {
  /** What its decoded value must match. */
  readonly pattern: Pick<RegExp, 'test'>;
  readonly required?: boolean;
}

/** A percent sign that does not begin an escape (RFC 3986 §2.1). */
const BROKEN_ESCAPE = /%(?![0-9a-f]{2})/i;

/**
 * The parameters of `url`'s query that `parameters` names; all others are dropped.
 * @throws Problem `invalid_query` if one of them is missing, comes twice or does not match its pattern
 */
export function readQuery(
  url: string,
  parameters: Readonly<Record<string, QueryParameter>>,
): URLSearchParams {
  const mark = url.indexOf('?');
  const text = mark < 0 ? '' : url.slice(mark + 1);
  if (BROKEN_ESCAPE.test(text)) throw invalid('The query holds a broken escape.');
  const given = new URLSearchParams(text);
  const taken = new URLSearchParams();
  for (const [name, { pattern, required = false }] of Object.entries(parameters)) {
    const [value, ...more] = given.getAll(name);
    if (value === undefined && !required) continue;
    if (value === undefined) throw invalid(`The query must hold ${name}.`);
    if (more.length > 0) throw invalid(`The query holds ${name} more than once.`);
    if (!pattern.test(value)) throw invalid(`The query holds a value of ${name} that cannot be used.`);
    taken.set(name, value);
  }
  return taken;
}

function invalid(detail: string): Problem {
  return new Problem('invalid_query', detail);
}
