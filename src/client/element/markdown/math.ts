import type { TokenizerExtension, TokensList } from 'marked';
import { drawnLater } from './drawn-later.ts';

/** Math in TeX. */
export interface MathToken {
  readonly type: 'math';
  readonly raw: string;
  readonly text: string;
}

/** How many characters of TeX become math. */
const LONGEST_MATH = 1_000;

/** MathML of TeX; undefined if it is shown as it came. */
export const drawnMath = drawnLater(
  async () => (await import('./math-element.ts')).mathElement,
  LONGEST_MATH,
);

/** Math that begins a line and ends one, without an empty line in it: `$$…$$` or `\[…\]`. */
const BLOCKS = [
  /^ {0,3}\$\$(?!\$)((?:[^$\\\n]|\\[^\n]|\n(?![ \t]*\n)){1,1000})\$\$[ \t]*(?:\n|$)/,
  /^ {0,3}\\\[((?:[^\\\n]|\\[^\]\n]|\n(?![ \t]*\n)){1,1000})\\\][ \t]*(?:\n|$)/,
];

/** Math in a line: `$$…$$`, `\(…\)`, or `$…$` with nothing blank inside of its ends, and neither letter nor digit after it. */
const INLINE = [
  /^\$\$(?!\$)((?:[^$\\]|\\[\s\S])+)\$\$/,
  /^\\\(((?:[^\\]|\\[^)])+)\\\)/,
  /^\$(?![\s$])((?:[^$\\`\n]|\\[^\n])*(?:[^$\\`\s]|\\\S))\$(?![\p{L}\d$])/u,
];

/** A word between spaces, which prices have between them and math has only in `\text{…}`. */
const PROSE = /\s\p{L}{2,}\s/u;

/** How far the next block of math is searched for. */
const NEAR = 2_048;

const token = (raw: string, text: string): MathToken => ({ type: 'math', raw, text: text.trim() });

function blockOf(source: string): MathToken | undefined {
  for (const block of BLOCKS) {
    const [raw, text = ''] = block.exec(source) ?? [];
    if (raw !== undefined && text.trim() !== '') return token(raw, text);
  }
  return undefined;
}

/** Math as extensions of marked. */
export const MATH: TokenizerExtension[] = [
  {
    name: 'math',
    level: 'block',
    // Only where it is math: a paragraph that is cut often takes long.
    start(source) {
      for (const { index } of source.slice(0, NEAR).matchAll(/\n(?= {0,3}(?:\$\$|\\\[))/g))
        if (blockOf(source.slice(index + 1))) return index + 1;
      return undefined;
    },
    tokenizer: blockOf,
  },
  {
    name: 'math',
    level: 'inline',
    start: (source) => source.search(/\$|\\\(/),
    tokenizer(source, before) {
      for (const inline of INLINE) {
        const [raw, text = ''] = inline.exec(source) ?? [];
        if (raw !== undefined && text.trim() !== '' && !isMoney(raw, text, before)) return token(raw, text);
      }
      return undefined;
    },
  },
];

/** Whether `$…$` stands between two prices, as in `5$ or 6$` and `$5/day or 9$`. */
function isMoney(
  raw: string,
  text: string,
  before: TokensList | readonly { readonly raw: string }[],
): boolean {
  if (!/^\$[^$]/.test(raw)) return false;
  const inWord = /[\p{L}\d$\\]$/u.test(before.at(-1)?.raw ?? '');
  return inWord || PROSE.test(text.replace(/\\text\s*\{[^{}]*\}/g, ''));
}
