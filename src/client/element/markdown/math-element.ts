import { render } from 'katex';

// Loaded with the first math. The build makes a file of its own of this module.

/** Commands that need what is not allowed (addresses, styles), or write to the console. As a macro, each is unknown. */
const REFUSED =
  '\\href \\url \\includegraphics \\htmlClass \\htmlId \\htmlStyle \\htmlData \\pmb \\fcolorbox \\message \\errmessage \\show';

/** Commands that define others: a few characters could become very many elements. KaTeX itself needs them for `\tag`. */
const DEFINITION = /\\(?:[egx]?def|let|futurelet|(?:new|renew|provide)command)(?![a-z])/i;

/** How deep elements may be in elements. */
const MAX_DEPTH = 100;

/** MathML of `tex`, as a block of its own if `kind` is `block`. Throws if it is no math. */
export function mathElement(tex: string, kind: string): Element {
  if (DEFINITION.test(tex)) throw new TypeError('The math defines a command.');
  const root = document.createElement('div');
  render(tex, root, {
    output: 'mathml',
    displayMode: kind === 'block',
    throwOnError: true,
    strict: 'ignore',
    trust: false,
    maxSize: 20,
    maxExpand: 200,
    macros: Object.fromEntries(REFUSED.split(' ').map((name) => [name, '\\refused'])),
  });
  const math = root.querySelector('math');
  if (!math) throw new TypeError('No math came.');
  // Also among words that are read from right to left.
  math.setAttribute('dir', 'ltr');
  showLetters(math, 0);
  return math;
}

/** Browsers know only `mathvariant="normal"` (MathML Core §2.1.4): other letters are characters of their own. */
function showLetters(element: Element, depth: number): void {
  if (depth > MAX_DEPTH) throw new RangeError('The math is too deep.');
  const { capital, small, others } = ALPHABETS[element.getAttribute('mathvariant') ?? ''] ?? {};
  if (capital !== undefined && small !== undefined)
    element.textContent = String(element.textContent).replace(/[A-Za-z]/g, (letter) => {
      const [first, from] = letter < 'a' ? ['A', capital] : ['a', small];
      return others?.[letter] ?? String.fromCodePoint(from + letter.charCodeAt(0) - first.charCodeAt(0));
    });
  for (const child of element.children) showLetters(child, depth + 1);
}

interface Alphabet {
  /** The characters of A and of a, which those of the other letters follow. */
  readonly capital: number;
  readonly small: number;
  /** The letters that Unicode had before. */
  readonly others: Readonly<Record<string, string>>;
}

/** Unicode's mathematical alphabets (block U+1D400). Bold, sans-serif and monospaced letters have a style instead. */
const ALPHABETS: Readonly<Record<string, Alphabet>> = {
  'double-struck': {
    ...{ capital: 0x1d538, small: 0x1d552 },
    others: { C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' },
  },
  script: {
    ...{ capital: 0x1d49c, small: 0x1d4b6 },
    others: { B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ' },
  },
  fraktur: {
    ...{ capital: 0x1d504, small: 0x1d51e },
    others: { C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ' },
  },
};
