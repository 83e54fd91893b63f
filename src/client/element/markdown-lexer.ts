import { Lexer, type Links, type MarkedToken, Tokenizer } from 'marked';
import { textPieces } from './text-pieces.ts';

export type { Links, MarkedToken } from 'marked';

/** How deep blocks may lie in blocks, and emphasis in emphasis. What is deeper is text: no one reads it. */
const MAX_DEPTH = 24;

/**
 * How many characters of a paragraph are parsed at once. The time grows with their square. Emphasis, a link or code that
 * goes on in the next piece is shown as its source.
 */
const LONGEST_PIECE = 1_024;

/**
 * Parses Markdown as GitHub reads comments: with tables, and each new line begins a line. HTML is text. `links` are the
 * reference links that the text before it defines. A text that cannot be parsed is one paragraph.
 */
export function parseMarkdown(text: string, links: Links): readonly MarkedToken[] {
  const lexer = new Lexer({ gfm: true, breaks: true, tokenizer: boundedTokenizer() });
  Object.assign(lexer.tokens.links, links);
  const whole = lexer.inlineTokens.bind(lexer);
  lexer.inlineTokens = (source, tokens = []) => {
    for (const piece of textPieces(source, LONGEST_PIECE)) {
      const line = piece.length < source.length && piece.endsWith('\n') ? piece.slice(0, -1) : piece;
      whole(line, tokens);
      if (line !== piece) tokens.push({ type: 'br', raw: '\n' });
    }
    return tokens;
  };
  try {
    // Without extensions, all tokens are marked's own.
    return lexer.lex(text) as MarkedToken[];
  } catch {
    const plain: MarkedToken = { type: 'text', raw: text, text, escaped: true };
    return [{ type: 'paragraph', raw: text, text, tokens: [plain] }];
  }
}

/** A tokenizer that knows no HTML, and whose recursion has a bound. */
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
