/** The headings of a document, as GitHub names their anchors, and its own anchors. */
export function anchorsOf(text: string): string[] {
  const seen = new Map<string, number>();
  const own = [...text.matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id);
  const headings = [...withoutCode(text).matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) => {
    const anchor = heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replace(/ /g, '-');
    const before = seen.get(anchor) ?? 0;
    seen.set(anchor, before + 1);
    return before === 0 ? anchor : `${anchor}-${before}`;
  });
  return [...own, ...headings];
}

/** The targets of the links and images of a document. */
export function linksOf(text: string): string[] {
  return [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
}

/** The text below a heading, up to the next heading of the same or a higher level. */
export function sectionOf(text: string, heading: string): string {
  const start = text.indexOf(`\n${heading}\n`);
  if (start < 0) throw new Error(`no heading: ${heading}`);
  const level = heading.indexOf(' ');
  const end = text.slice(start + 1 + heading.length).search(new RegExp(`^#{1,${level}} `, 'm'));
  return end < 0 ? text.slice(start) : text.slice(start, start + 1 + heading.length + end);
}

function withoutCode(text: string): string {
  return text.replace(/^ *```[\s\S]*?^ *```/gm, '');
}

/** A table: the cells of its header, and those of each row. */
export interface Table {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** The tables of a document, those of its lists too. */
export function tablesOf(text: string): Table[] {
  const blocks = withoutCode(text).match(/(?:^ *\|.*\n?)+/gm) ?? [];
  return blocks.map((block) => {
    const [header = [], , ...rows] = block.trim().split('\n').map(cellsOf);
    return { header, rows };
  });
}

function cellsOf(line: string): string[] {
  const cells = line.trim().split('|').slice(1, -1);
  return cells.map((cell) => cell.trim());
}

/** The code of the snippet `name`. @throws Error if there is none */
export function codeOf(document: string, name: string): string {
  const [, code] =
    new RegExp(`<!-- snippet: ${name} -->\\n\`\`\`[a-z]+\\n([^]*?)\`\`\``).exec(document) ?? [];
  if (code === undefined) throw new Error(`the document has no snippet ${name}`);
  return code;
}
