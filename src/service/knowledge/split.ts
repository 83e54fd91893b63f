import { blocksOf } from './blocks.ts';

/** How many characters (UTF-16 units) a piece has at most. */
export const MAX_CHARACTERS = 1500;
/** How many characters of a title stand in a path of headings. */
const MAX_TITLE = 100;
/** Where a text that is too long is cut rather than between any two characters, the best first. */
const CUTS = ['\n', '. ', '。', ' '];

/** A part of a document that is found as a whole. */
export interface Piece {
  /** The headings above it, outermost first: `Leave › Parental leave`. Empty without one. */
  readonly heading: string;
  readonly text: string;
}

interface Options {
  readonly isMarkdown: boolean;
  /** How many characters a piece has at most; 2 or more. */
  readonly max?: number;
}

/**
 * Splits a text into pieces that, joined, are the text. A piece begins at each heading, but headings without text stay
 * with what comes next; in between it holds as many whole paragraphs as fit. Fenced code is cut only if it is too long.
 */
export function split(text: string, { isMarkdown, max = MAX_CHARACTERS }: Options): Piece[] {
  const pieces: Piece[] = [];
  const titles: string[] = [];
  let begin = 0;
  let hasOnlyHeadings = true;
  const endPiece = (end: number) => {
    if (end === begin) return;
    const heading = titles.filter((title) => title !== '').join(' › ');
    pieces.push({ heading, text: text.slice(begin, end) });
    begin = end;
    hasOnlyHeadings = true;
  };
  for (const { from, to, heading, isFence } of blocksOf(text, isMarkdown)) {
    const staysWhole = (isFence || heading !== undefined) && to - from <= max;
    const fits = to - begin <= max || (hasOnlyHeadings && !staysWhole);
    if (!fits || (heading && !hasOnlyHeadings)) endPiece(from);
    if (heading) nest(titles, heading);
    while (to - begin > max) endPiece(cut(text, begin, max));
    hasOnlyHeadings &&= heading !== undefined;
  }
  endPiece(text.length);
  return pieces;
}

/** Puts a heading below those of lower levels, in place of the others. */
function nest(titles: string[], { level, title }: { level: number; title: string }): void {
  titles.length = Math.min(titles.length, level - 1);
  while (titles.length < level - 1) titles.push('');
  titles.push(firstCharacters(title, MAX_TITLE).replace(/(^|\s+)#+$/, ''));
}

/** The first `max` characters of a text, without the half of one. */
export function firstCharacters(text: string, max: number): string {
  return text.slice(0, wholeCharacters(text, max));
}

/** Where to end a piece of at most `max` characters that begins at `from`: as late as possible, in its second half. */
function cut(text: string, from: number, max: number): number {
  const window = text.slice(from, from + max);
  for (const mark of CUTS) {
    const end = window.lastIndexOf(mark) + mark.length;
    if (end >= mark.length && end > max / 2) return from + end;
  }
  return wholeCharacters(text, from + max);
}

/** `at`, or the place before it where it is between the halves of a surrogate pair. */
function wholeCharacters(text: string, at: number): number {
  const isInside = /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(at - 1, at + 1));
  return isInside ? at - 1 : at;
}
