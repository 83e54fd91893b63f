const LONGEST = 80;
/** How much of a message is read: of a long one, all would take long. */
const LONGEST_READ = 1_000;

/** The first words of a message, without the signs of Markdown. Empty if it has none. */
export function plainTitle(text: string): string {
  return text
    .trimStart()
    .slice(0, LONGEST_READ)
    .replace(/^\s*(`{3}|~{3}).*$/gm, '')
    .replace(/^\s*(?:#{1,6}|>|[-*+]|\d+[.)])\s+/gm, '')
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/(?<!\w)(\*\*|__|~~|\*|_|`+)(?=\S)(.+?)(?<=\S)\1(?!\w)/g, '$2')
    .replace(/\s+/g, ' ')
    .trim()
    .slice(0, LONGEST);
}
