import { newElement, setLabel } from '../dom.ts';
import { icon } from '../icons.ts';
import { drawnLater } from './drawn-later.ts';
import { inlineNodes, mathNodes } from './inline.ts';
import { LONGEST_PIECE, type MarkedToken, type Token, textPieces } from './lexer.ts';
import type { MathToken } from './math.ts';

/** The words for the code, the tables and the math of an answer. */
export interface BlockWords {
  readonly copy: string;
  readonly code: string;
  readonly table: string;
  readonly formula: string;
}

/** How many characters of code get colours. */
const LONGEST_COLORED = 10_000;

const coloredCode = drawnLater(async () => (await import('./code-colors.ts')).coloredCode, LONGEST_COLORED);

/** The attributes of a box that can be scrolled sideways with the keyboard alone. As regions, many would be landmarks. */
const scrollable = (label: string) => ({ role: 'group', tabindex: '0', 'aria-label': label });

/** The element of one block; undefined if it is not shown. Of code, the beginning `begun` is left out. */
export function blockElement(token: MarkedToken, words: BlockWords, begun = ''): HTMLElement | undefined {
  switch (token.type) {
    case 'space':
    case 'def':
      return undefined;
    case 'hr':
      return newElement('hr');
    case 'heading':
      // All on one level: answers skip levels, and the levels of the page are not known.
      return newElement('h3', { dir: 'auto', 'data-depth': `${token.depth}` }, inlineNodes(token.tokens));
    case 'code':
      return codeElement({ ...token, text: token.text.slice(begun.length) }, words);
    case 'math':
      return mathElement(token, words);
    case 'blockquote':
      return newElement('blockquote', {}, blockElements(token.tokens, words));
    case 'list':
      return listElement(token, words);
    case 'table':
      return tableElement(token, words);
    case 'paragraph':
      return newElement('p', { dir: 'auto' }, inlineNodes(token.tokens));
    default:
      return newElement('p', { dir: 'auto' }, inlineNodes([token]));
  }
}

function blockElements(tokens: readonly object[], words: BlockWords): HTMLElement[] {
  return (tokens as readonly MarkedToken[]).flatMap((token) => blockElement(token, words) ?? []);
}

/** Whether the line that ends this code is there. */
export const hasEnded = ({ raw }: Token<'code'>): boolean =>
  /^ {0,3}(`{3,}|~{3,})[^\n]*\n(?:[\s\S]*\n)? {0,3}\1[`~]*[ \t]*\n*$/.test(raw);

function codeElement(token: Token<'code'>, { code, copy }: BlockWords): HTMLElement {
  const { lang = '', text } = token;
  const [language = ''] = lang.split(/\s/, 1);
  const label = language ? `${code} (${language})` : code;
  const attributes = {
    type: 'button',
    part: 'button copy-code',
    class: 'icon',
    'data-copy-code': '',
  } as const;
  const button = newElement('button', attributes, icon('copy'));
  setLabel(button, copy);
  const head = newElement('div', { class: 'code-head' }, newElement('span', {}, language), button);
  const colored = language && hasEnded(token) ? coloredCode(text, language) : undefined;
  const body = newElement(
    'pre',
    { dir: 'ltr', ...scrollable(label) },
    newElement('code', {}, colored ?? textPieces(text, LONGEST_PIECE)),
  );
  return newElement('div', { class: 'code', part: 'code-block' }, head, body);
}

function mathElement(token: MathToken, { formula }: BlockWords): HTMLElement {
  const nodes = mathNodes(token, 'block');
  const isMath = nodes[0] instanceof MathMLElement;
  return isMath
    ? newElement('div', { class: 'math', ...scrollable(formula) }, nodes)
    : newElement('p', { dir: 'auto' }, nodes);
}

function listElement({ ordered, start, items }: Token<'list'>, words: BlockWords): HTMLElement {
  const from = ordered && start !== '' && start !== 1 ? { start: `${start}` } : {};
  return newElement(
    ordered ? 'ol' : 'ul',
    from,
    items.map((item) => itemElement(item, words)),
  );
}

function itemElement({ tokens }: Token<'list_item'>, words: BlockWords): HTMLElement {
  // Without blank lines in the list, the text of an item is no paragraph.
  const nodes = (tokens as readonly MarkedToken[]).flatMap((token): (Node | undefined)[] =>
    token.type === 'text' || token.type === 'checkbox' ? inlineNodes([token]) : [blockElement(token, words)],
  );
  return newElement(
    'li',
    { dir: 'auto' },
    nodes.filter((node) => node !== undefined),
  );
}

function tableElement({ header, rows }: Token<'table'>, words: BlockWords): HTMLElement {
  const row = (cells: Token<'table'>['header']) =>
    newElement(
      'tr',
      {},
      cells.map(({ header, align, tokens }) => {
        const attributes = { dir: 'auto', ...(align && { 'data-align': align }) };
        return newElement(header ? 'th' : 'td', attributes, inlineNodes(tokens));
      }),
    );
  const table = newElement(
    'table',
    {},
    newElement('thead', {}, row(header)),
    newElement('tbody', {}, rows.map(row)),
  );
  return newElement('div', { class: 'table', ...scrollable(words.table) }, table);
}
