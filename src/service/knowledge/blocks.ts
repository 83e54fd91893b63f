/** A part of a text, from one place to another, with the blank lines after it. */
export interface Block {
  readonly from: number;
  readonly to: number;
  /** Of a heading: its level, 1 to 6, and its words. */
  readonly heading?: { readonly level: number; readonly title: string };
  /** Whether it is fenced code. */
  readonly isFence?: boolean;
}

const ATX_HEADING = /^ {0,3}(#{1,6})(?=\s|$)/;
/** What an underlined heading begins with: not a list, a quote, a table or a line between paragraphs. */
const UNDERLINED = /^ {0,3}[^\s\-*+>#|`~=]/;
const UNDERLINE = /^ {0,3}(?:=+|-+)\s*$/;
/** Code in a list is indented further than CommonMark allows at the left. */
const FENCE = /^[ \t]*(`{3,}(?=[^`]*$)|~{3,})/;

/**
 * The blocks of a text, in order and without gaps. Those of Markdown are headings, fenced code and paragraphs
 * (https://spec.commonmark.org, by lines alone); those of plain text are paragraphs.
 */
export function blocksOf(text: string, isMarkdown: boolean): Block[] {
  const blocks: Block[] = [];
  for (let from = 0; from < text.length; ) {
    const special = isMarkdown ? specialBlock(text, from) : undefined;
    const block = special ?? { from, to: endOfParagraph(text, from, isMarkdown) };
    const to = afterBlankLines(text, block.to);
    blocks.push({ ...block, to });
    from = to;
  }
  return blocks;
}

/** The line that begins at `from`, with its end. */
function lineAt(text: string, from: number): string {
  const end = text.indexOf('\n', from);
  return text.slice(from, end < 0 ? text.length : end + 1);
}

const isBlank = (line: string) => !/\S/.test(line);

function afterBlankLines(text: string, from: number): number {
  for (let at = from; ; ) {
    const line = lineAt(text, at);
    if (line === '' || !isBlank(line)) return at;
    at += line.length;
  }
}

/** The heading or code that begins at `from`, if one does. */
function specialBlock(text: string, from: number): Block | undefined {
  return hashedHeading(text, from) ?? underlinedHeading(text, from) ?? fence(text, from);
}

function hashedHeading(text: string, from: number): Block | undefined {
  const line = lineAt(text, from);
  const [begin, hashes] = ATX_HEADING.exec(line) ?? [];
  if (begin === undefined || hashes === undefined) return;
  return {
    from,
    to: from + line.length,
    heading: { level: hashes.length, title: line.slice(begin.length).trim() },
  };
}

/** A paragraph of one line with a line of `=` or `-` under it. */
function underlinedHeading(text: string, from: number): Block | undefined {
  const line = lineAt(text, from);
  if (!UNDERLINED.test(line)) return;
  const under = lineAt(text, from + line.length);
  if (!UNDERLINE.test(under)) return;
  const level = under.trimStart().startsWith('=') ? 1 : 2;
  return { from, to: from + line.length + under.length, heading: { level, title: line.trim() } };
}

/** Fenced code up to its closing fence; without one, up to the end of the text. */
function fence(text: string, from: number): Block | undefined {
  const line = lineAt(text, from);
  const open = FENCE.exec(line)?.[1];
  if (open === undefined) return;
  const mark = open.slice(0, 1);
  for (let at = from + line.length; at < text.length; ) {
    const inner = lineAt(text, at);
    at += inner.length;
    const marks = inner.trim();
    if (marks.startsWith(open) && marks === mark.repeat(marks.length)) return { from, to: at, isFence: true };
  }
  return { from, to: text.length, isFence: true };
}

/** Where the paragraph that begins at `from` ends: at a blank line, or before a heading or code. */
function endOfParagraph(text: string, from: number, isMarkdown: boolean): number {
  for (let at = from + lineAt(text, from).length; ; ) {
    const line = lineAt(text, at);
    if (isBlank(line) || (isMarkdown && (ATX_HEADING.test(line) || FENCE.test(line)))) return at;
    at += line.length;
  }
}
