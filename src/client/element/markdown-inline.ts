import { decodeReferences } from './character-references.ts';
import type { MarkedToken } from './markdown-lexer.ts';
import { newElement } from './new-element.ts';
import { safeAddress } from './safe-address.ts';

type Inline = Extract<MarkedToken, { type: 'link' | 'image' }>;

/** The elements of tokens that only contain others. */
const WRAPPERS = { strong: 'strong', em: 'em', del: 'del' } as const;

/** The nodes of inline tokens. What is in no list here is shown as its source. In a link, there is no other one. */
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
    case 'checkbox':
      return [new Text(token.checked ? '☑ ' : '☐ ')];
    case 'link':
    case 'image':
      return linkNodes(token, isInLink);
    default:
      return [new Text(token.raw)];
  }
}

/** A picture is a link, too: to load it would tell another server who reads this, and when. */
function linkNodes(token: Inline, isInLink: boolean): Node[] {
  const isLiteral = token.type === 'link' && token.autolink === true;
  const href = safeAddress(isLiteral ? token.href : decodeReferences(token.href));
  const text = () => (isLiteral ? [new Text(token.text)] : inlineNodes(token.tokens, true));
  if (isInLink) return text();
  // The reader sees where it would lead.
  if (href === undefined) return [new Text(token.raw)];
  const attributes = { part: 'link', href, target: '_blank', rel: 'noopener noreferrer' };
  const shown = text();
  return [newElement('a', attributes, shown.length > 0 ? shown : href)];
}
