import { Lexer, type Links, Marked, type MarkedToken as OwnToken, Tokenizer } from 'marked';
import { MATH, type MathToken } from './math.ts';

export type { Links } from 'marked';

export type MarkedToken = OwnToken | MathToken;

/** The tokens of one type. */
export type Token<T extends MarkedToken['type']> = Extract<MarkedToken, { type: T }>;

/** Markdown as in comments on GitHub, and math. */
const { defaults } = new Marked({ gfm: true, breaks: true, extensions: MATH });

/** How deep blocks may be in blocks, and emphasis in emphasis. Deeper ones are text. */
const MAX_DEPTH = 24;

/**
 * How many characters of a paragraph are parsed at once, since the time grows with their square. Emphasis, a link or code
 * that goes on in the next piece is shown as its source.
 */
export const LONGEST_PIECE = 1_024;

/**
 * Parses Markdown with tables and math, and with line breaks as they are. HTML is text. `links` are the
 * reference links of the text before. If the first paragraph begins with `begun`, only the rest of it has tokens. A long
 * paragraph has one token for each piece. A text that cannot be parsed is one paragraph.
 */
export function parseMarkdown(text: string, links: Links, begun = ''): readonly MarkedToken[] {
  const lexer = new Lexer({ ...defaults, tokenizer: boundedTokenizer() });
  Object.assign(lexer.tokens.links, links);
  const whole = lexer.inlineTokens.bind(lexer);
  let known = begun;
  lexer.inlineTokens = (source, tokens = []) => {
    const start = source.startsWith(known) ? known.length : 0;
    // Only the first block can begin so.
    known = '';
    if (start === 0 && source.length <= LONGEST_PIECE) return whole(source, tokens);
    for (const piece of textPieces(source.slice(start), LONGEST_PIECE)) {
      const inner = whole(piece.replace(/\n$/, ''));
      if (piece.endsWith('\n')) inner.push({ type: 'br', raw: '\n' });
      tokens.push({ ...pieceToken(piece), tokens: inner });
    }
    return tokens;
  };
  try {
    return lexer.lex(text) as MarkedToken[];
  } catch {
    const rest = text.startsWith(begun) ? text.slice(begun.length) : text;
    return [{ type: 'paragraph', raw: text, text, tokens: [pieceToken(rest)] }];
  }
}

/** The token of a text that is not parsed. */
export const pieceToken = (text: string) => ({ type: 'text', raw: text, text, escaped: true }) as const;

/** A tokenizer without HTML, whose recursion has a limit. */
function boundedTokenizer(): Tokenizer {
  const tokenizer = new Tokenizer();
  let depth = 0;
  function bounded<A extends unknown[], R>(tokenize: (...input: A) => R): (...input: A) => R | undefined {
    return (...input) => {
      if (depth >= MAX_DEPTH) return undefined;
      depth += 1;
      try {
        return tokenize.apply(tokenizer, input);
      } finally {
        depth -= 1;
      }
    };
  }
  tokenizer.blockquote = bounded(tokenizer.blockquote);
  tokenizer.list = bounded(tokenizer.list);
  tokenizer.link = bounded(tokenizer.link);
  tokenizer.reflink = bounded(tokenizer.reflink);
  tokenizer.emStrong = bounded(tokenizer.emStrong);
  tokenizer.del = bounded(tokenizer.del);
  tokenizer.html = tokenizer.tag = () => undefined;
  return tokenizer;
}

/**
 * Cuts `text` into pieces of at most `longest` characters: after the last end of a line, else after the last space, else in
 * a word. Joined, the pieces are the text.
 */
export function textPieces(text: string, longest: number): string[] {
  const pieces: string[] = [];
  let from = 0;
  while (text.length - from > longest) {
    const piece = text.slice(from, from + longest);
    const cut = (piece.lastIndexOf('\n') + 1 || piece.lastIndexOf(' ') + 1 || longest) + from;
    // Both halves of one character stay together.
    const end = /[\ud800-\udbff]/.test(text.charAt(cut - 1)) ? cut - 1 : cut;
    pieces.push(text.slice(from, end));
    from = end;
  }
  return [...pieces, text.slice(from)];
}
