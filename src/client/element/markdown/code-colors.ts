import { common, createLowlight } from 'lowlight';

// Loaded with the first block of code that has ended. The build makes a file of its own of this module.
const lowlight = createLowlight(common);

type Tokens = readonly ReturnType<typeof lowlight.highlight>['children'][number][];

/** How deep tokens may be in tokens. */
const MAX_DEPTH = 50;

/** Code with its tokens as elements, whose classes have the colours. Throws for a language that is not known. */
export function coloredCode(text: string, language: string): DocumentFragment {
  const fragment = new DocumentFragment();
  appendTokens(fragment, lowlight.highlight(language, text).children, 0);
  return fragment;
}

function appendTokens(parent: Node, tokens: Tokens, depth: number): void {
  if (depth > MAX_DEPTH) throw new RangeError('The code is too deep.');
  for (const token of tokens) {
    if (token.type === 'text') parent.appendChild(new Text(token.value));
    if (token.type !== 'element') continue;
    const { className } = token.properties;
    const span = document.createElement('span');
    if (Array.isArray(className)) span.className = className.join(' ');
    appendTokens(span, token.children, depth + 1);
    parent.appendChild(span);
  }
}
