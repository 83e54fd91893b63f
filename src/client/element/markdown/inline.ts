import { newElement } from '../dom.ts';
import type { MarkedToken } from './lexer.ts';
import { drawnMath, type MathToken } from './math.ts';

type Inline = Extract<MarkedToken, { type: 'link' | 'image' }>;

/** The elements of tokens that only contain others. */
const WRAPPERS = { strong: 'strong', em: 'em', del: 'del' } as const;

/** The nodes of inline tokens. A token of another type is shown as its source. A link in a link is only its text. */
export function inlineNodes(tokens: readonly object[] = [], isInLink = false): Node[] {
  return (tokens as readonly MarkedToken[]).flatMap((token) => nodesOf(token, isInLink));
}

function nodesOf(token: MarkedToken, isInLink: boolean): Node[] {
  switch (token.type) {
    case 'text':
      if (token.tokens) return inlineNodes(token.tokens, isInLink);
      return [new Text(token.escaped ? token.text : decodeReferences(token.text))];
    case 'escape':
      return [new Text(token.text)];
    case 'strong':
    case 'em':
    case 'del':
      return [newElement(WRAPPERS[token.type], {}, inlineNodes(token.tokens, isInLink))];
    case 'codespan':
      return [newElement('code', { part: 'code' }, token.text)];
    case 'br':
      return [newElement('br')];
    case 'math':
      return mathNodes(token, 'inline');
    case 'checkbox':
      return [new Text(token.checked ? '☑ ' : '☐ ')];
    case 'link':
    case 'image':
      return linkNodes(token, isInLink);
    default:
      return [new Text(token.raw)];
  }
}

/** Math, or its lines as they came. */
export function mathNodes({ text, raw }: MathToken, kind: 'block' | 'inline'): Node[] {
  const math = drawnMath(text, kind);
  if (math) return [math];
  const lines = raw.trim().split('\n');
  return lines.flatMap((line, at) => (at === 0 ? [new Text(line)] : [newElement('br'), new Text(line)]));
}

/** A link. A picture is a link, too: to load it would tell another server who reads this, and when. */
function linkNodes(token: Inline, isInLink: boolean): Node[] {
  const isLiteral = token.type === 'link' && token.autolink === true;
  const href = safeAddress(isLiteral ? token.href : decodeReferences(token.href));
  const text = () => (isLiteral ? [new Text(token.text)] : inlineNodes(token.tokens, true));
  if (isInLink) return text();
  // Shown as its source, so that the reader sees the address.
  if (href === undefined) return [new Text(token.raw)];
  const attributes = { part: 'link', href, target: '_blank', rel: 'noopener noreferrer' };
  const shown = text();
  return [newElement('a', attributes, shown.length > 0 ? shown : href)];
}

/** The named character references that answers often have (WHATWG HTML §13.5 has all of them). */
const NAMED: Readonly<Record<string, string>> = {
  ...{ amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', shy: '\u00ad' },
  ...{ copy: '©', reg: '®', trade: '™', deg: '°', plusmn: '±', micro: 'µ', para: '¶', sect: '§' },
  ...{ laquo: '«', raquo: '»', lsquo: '‘', rsquo: '’', ldquo: '“', rdquo: '”', bull: '•', middot: '·' },
  ...{ hellip: '…', ndash: '–', mdash: '—', times: '×', divide: '÷', minus: '−', ne: '≠', le: '≤', ge: '≥' },
  ...{ larr: '←', uarr: '↑', rarr: '→', darr: '↓', harr: '↔', rArr: '⇒', infin: '∞', asymp: '≈', sum: '∑' },
  ...{ euro: '€', pound: '£', yen: '¥', cent: '¢', frac12: '½', frac14: '¼', frac34: '¾', sup2: '²' },
};

const REFERENCE = /&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|([a-z][a-z0-9]{1,31}));/gi;

/** Replaces the character references of `text` by their characters. One with an unknown name stays as it is. */
function decodeReferences(text: string): string {
  return text.replace(REFERENCE, (whole: string, ...found: readonly (string | undefined)[]) => {
    const [hex, decimal, name] = found;
    if (name !== undefined) return Object.hasOwn(NAMED, name) ? String(NAMED[name]) : whole;
    return characterOf(hex === undefined ? Number(decimal) : Number.parseInt(hex, 16));
  });
}

/** The character with this number; U+FFFD if there is none (CommonMark §2.5). */
function characterOf(code: number): string {
  const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
  return String.fromCodePoint(isCharacter ? code : 0xfffd);
}

const PROTOCOLS = ['http:', 'https:', 'mailto:'];

/**
 * The address of a link, if it is a whole one that begins with `http:`, `https:` or `mailto:`; undefined for every other
 * one. It is returned as it was parsed, so that the browser reads it in the same way.
 */
function safeAddress(address: string): string | undefined {
  try {
    const { protocol, href } = new URL(address);
    return PROTOCOLS.includes(protocol) ? href : undefined;
  } catch {
    return undefined;
  }
}
