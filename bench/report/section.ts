/**
 * `text` with `content` in place of what stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`,
 * which stay. Empty lines part it from them, without which Markdown would not see a table.
 * @throws Error if the two are not there, are there more than once, or are in the wrong order.
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
