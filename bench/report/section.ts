/**
 * Replaces the text between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->` by `content`. Markdown needs the empty
 * lines around a table.
 * @throws Error if one of the two marks is missing, is there more than once, or is in the wrong order.
 */
export function withSection(text: string, name: string, content: string): string {
  const [begin, end] = [`<!-- bench:${name} -->`, `<!-- /bench:${name} -->`];
  const parts = text.split(begin);
  const [before, after] = parts;
  const rest = after?.split(end);
  if (parts.length !== 2 || rest?.length !== 2 || before?.includes(end))
    throw new Error(`There should be one ${begin} here, and one ${end} after it`);
  return `${before}${begin}\n\n${content}\n\n${end}${rest[1]}`;
}
