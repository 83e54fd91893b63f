import { hasEnded } from './blocks.ts';
import { inlineNodes } from './inline.ts';
import { LONGEST_PIECE, type MarkedToken, pieceToken, type Token, textPieces } from './lexer.ts';

/** The beginning of a long block that the text after it cannot change. Only the rest of the block is parsed again. */
export interface Begun {
  readonly type?: MarkedToken['type'];
  /** The number of nodes that show it. */
  readonly nodes: number;
  /** The text, of a paragraph (also in a quotation) or of code. */
  readonly text: string;
  /** The number of characters, of the items of a list or of the rows of a table with its head. */
  readonly length: number;
  /** The text that is put before the rest of a list or a table, so that it is parsed as one. */
  readonly head: string;
  /** Whether blank lines make paragraphs of the items of a list. Then `head` is an item. */
  readonly isLoose?: boolean;
}

/** No beginning is known. */
export const NOT_BEGUN: Begun = { nodes: 0, text: '', length: 0, head: '' };

/** How many pieces, items or rows at the end of a block can still change. */
const OPEN = 2;

/** Whether `block` still begins like this. More text can make another block of it. */
export function goesOn(block: MarkedToken | undefined, { type, text, isLoose }: Begun): boolean {
  if (!type) return true;
  if (block?.type !== type || (block.type === 'blockquote' && !onlyParagraph(block))) return false;
  if (block.type === 'list') return block.loose === isLoose;
  // Then it gets its colours.
  if (block.type === 'code' && hasEnded(block)) return false;
  // A text that has become shorter can be cut at another place.
  return (
    !text ||
    ('text' in block && block.text.startsWith(text) && block.text.length > text.length + LONGEST_PIECE)
  );
}

/** More of the beginning of a long block than `before`; undefined if there is not more. */
export function begunOf(block: MarkedToken, before: Begun): Begun | undefined {
  if (block.type === 'list') return begunList(block, before);
  if (block.type === 'table') return begunTable(block, before);
  if (block.type === 'blockquote') {
    const inner = onlyParagraph(block);
    const begun = inner && begunOf(inner, before);
    return begun && { ...begun, type: 'blockquote' };
  }
  if (block.type !== 'paragraph' && (block.type !== 'code' || hasEnded(block))) return undefined;
  const { type, text } = block;
  const rest = () => textPieces(text.slice(before.text.length), LONGEST_PIECE).map(pieceToken);
  const begun = sure<{ readonly raw: string }>(text, type === 'code' ? rest() : block.tokens);
  if (begun.length === 0) return undefined;
  const nodes = before.nodes + inlineNodes(begun).length;
  return { ...before, type, nodes, text: before.text + begun.map(({ raw }) => raw).join('') };
}

/** The paragraph of a quotation that has nothing else. */
function onlyParagraph({ tokens }: Token<'blockquote'>): Token<'paragraph'> | undefined {
  const [inner, ...others] = tokens as readonly MarkedToken[];
  return inner?.type === 'paragraph' && others.length === 0 ? inner : undefined;
}

/** The pieces, items or rows of a long block that cannot change any more. */
const sure = <T>(text: string, parts: readonly T[]): readonly T[] =>
  text.length > OPEN * LONGEST_PIECE ? parts.slice(0, -OPEN) : [];

function begunList({ type, items, loose, raw }: Token<'list'>, before: Begun): Begun | undefined {
  const begun = sure(raw, items.slice(before.isLoose ? 1 : 0));
  const isLoose = before.isLoose || begun.some(hasBlankLine);
  // Blank lines only at the end may turn out to be behind the list.
  if (begun.length === 0 || isLoose !== loose) return undefined;
  const [bullet] = raw.trimStart().split(/\s/, 1);
  const length = begun.reduce((sum, item) => sum + item.raw.length, before.length);
  // Indented as far as an item may be, so that the next item does not become a part of it.
  const head = isLoose ? `   ${bullet} a\n\n` : '';
  return { ...before, type, nodes: before.nodes + begun.length, length, head, isLoose };
}

/** Whether blank lines in or behind this item make paragraphs of all items, if another item follows. */
function hasBlankLine({ raw, tokens }: Token<'list'>['items'][number]): boolean {
  const isApart = tokens.some((token) => token.type === 'space' && /\n.*\n/.test(token.raw));
  return isApart || /\n[ \t]*\n[ \t]*$/.test(raw);
}

function begunTable({ type, raw, rows }: Token<'table'>, before: Begun): Begun | undefined {
  const head = before.head || (/^.*\n.*\n/.exec(raw)?.[0] ?? '');
  const lines = raw.slice(head.length).split('\n');
  const begun = sure(raw, lines);
  if (begun.length === 0 || lines.length !== rows.length) return undefined;
  const length = begun.reduce((sum, line) => sum + line.length + 1, before.length || head.length);
  return { ...before, type, nodes: before.nodes + begun.length, length, head };
}
