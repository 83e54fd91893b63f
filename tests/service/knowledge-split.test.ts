import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { MAX_CHARACTERS, split } from '../../src/service/knowledge/split.ts';

const LINES = [
  ...[
    '# A',
    '## B  ##',
    '###### Deep',
    '####### seven',
    '#',
    '#no',
    'Title',
    '===',
    '---',
    '- item',
    '> quote',
  ],
  ...[
    '```',
    '```js',
    '````',
    '~~~',
    '   ~~~~',
    '    ```',
    '``` a`b',
    'some words. And more',
    'word',
    '',
    '',
    '  ',
  ],
  ...[
    '😀😀😀😀',
    'ein sehr langer Satz ohne Ende und noch weiter',
    'x'.repeat(50),
    '文字。文字。文字。',
    '\u2028',
  ],
];
const texts = fc
  .array(fc.tuple(fc.constantFrom(...LINES), fc.constantFrom('\n', '\n', '\r\n', ' ', '')), { maxLength: 40 })
  .map((lines) => lines.flat().join(''));

test('the pieces, joined, are the text, and none is too long, empty or cut inside a character', () => {
  fc.assert(
    fc.property(texts, fc.boolean(), fc.integer({ min: 2, max: 90 }), (text, isMarkdown, max) => {
      const pieces = split(text, { isMarkdown, max }).map((piece) => piece.text);
      expect(pieces.join('')).toBe(text);
      expect(pieces.filter((piece) => piece.length > max || piece === '' || !piece.isWellFormed())).toEqual(
        [],
      );
    }),
    { numRuns: 1000 },
  );
});

/** Blocks of a document. The number makes each one unlike the others. */
const blocks = fc.array(
  fc.oneof(
    {
      weight: 2,
      arbitrary: fc.record({ level: fc.integer({ min: 1, max: 6 }), isUnderlined: fc.boolean() }),
    },
    fc.record({ words: fc.integer({ min: 1, max: 12 }) }),
    fc.record({ lines: fc.integer({ min: 0, max: 5 }), fence: fc.constantFrom('```', '~~~~', '  ```') }),
  ),
  { maxLength: 30 },
);

/** The text of blocks, and for each paragraph and code where it stands and the headings above it. */
function written(list: typeof blocks extends fc.Arbitrary<infer T> ? T : never) {
  let text = '';
  const path: (string | undefined)[] = [];
  const parts: { from: number; to: number; heading: string; isFence: boolean }[] = [];
  for (const [n, block] of list.entries()) {
    const from = text.length;
    if ('level' in block) {
      const isUnderlined = block.isUnderlined && block.level <= 2;
      const line = isUnderlined ? (block.level === 1 ? '\n=====' : '\n--') : '';
      text += `${isUnderlined ? '' : `${'#'.repeat(block.level)} `}Title ${n}${line}\n\n`;
      path.length = block.level - 1;
      path[block.level - 1] = `Title ${n}`;
      continue;
    }
    const isFence = 'fence' in block;
    text += isFence
      ? `${block.fence}\n${`# ${n}\n\n`.repeat(block.lines)}${block.fence}`
      : Array.from({ length: block.words }, () => `word${n}`).join(' ');
    parts.push({ from, to: text.length, heading: path.filter(Boolean).join(' › '), isFence });
    text += '\n\n';
  }
  return { text, parts };
}

function placed(text: string, isMarkdown: boolean, max: number) {
  let to = 0;
  return split(text, { isMarkdown, max }).map((piece) => {
    const from = to;
    to += piece.text.length;
    return { ...piece, from, to };
  });
}

test('a piece has the headings above it, and code that is short enough is not cut', () => {
  fc.assert(
    fc.property(blocks, fc.integer({ min: 40, max: 120 }), (list, max) => {
      const { text, parts } = written(list);
      const pieces = placed(text, true, max);
      for (const { from, to, heading, isFence } of parts) {
        const touched = pieces.filter((piece) => piece.from < to && piece.to > from);
        expect([...new Set(touched.map((piece) => piece.heading))]).toEqual([heading]);
        if (isFence && to + 2 - from <= max) expect(touched).toHaveLength(1);
      }
    }),
    { numRuns: 1000 },
  );
});

test('a paragraph of plain text that is short enough is not cut', () => {
  fc.assert(
    fc.property(blocks, (list) => {
      const { text, parts } = written(list.filter((block) => 'words' in block));
      const pieces = placed(text, false, 90);
      for (const { from, to } of parts.filter((part) => part.to + 2 - part.from <= 90))
        expect(pieces.filter((piece) => piece.from < to && piece.to > from)).toHaveLength(1);
    }),
  );
});

describe('what is split', () => {
  test('begins a piece at each heading, and keeps headings without text with what follows', () => {
    const text = '# Leave\n\n## Parental\n\nTwelve weeks.\n\n### How\nAsk us.\n## Sick\nStay at home.\n';
    expect(split(text, { isMarkdown: true })).toEqual([
      { heading: 'Leave › Parental', text: '# Leave\n\n## Parental\n\nTwelve weeks.\n\n' },
      { heading: 'Leave › Parental › How', text: '### How\nAsk us.\n' },
      { heading: 'Leave › Sick', text: '## Sick\nStay at home.\n' },
    ]);
    expect(split(text, { isMarkdown: false })).toEqual([{ heading: '', text }]);
  });

  test('begins with its heading, also where its first paragraph is too long', () => {
    const pieces = split('# T\n\none two three four five six', { isMarkdown: true, max: 20 });
    expect(pieces.map((piece) => piece.text)).toEqual(['# T\n\none two three ', 'four five six']);
  });

  test('is not cut in code that follows a line directly', () => {
    const pieces = split('one two three:\n```\n# four\n```\nfive', { isMarkdown: true, max: 20 });
    expect(pieces.map((piece) => piece.text)).toEqual(['one two three:\n', '```\n# four\n```\nfive']);
  });

  test('takes neither front matter nor a table or list for a heading', () => {
    const text = '---\ntitle: x\n---\n\n| a |\n---\n\n- b\n---\n';
    expect(split(text, { isMarkdown: true })).toEqual([{ heading: '', text }]);
  });

  test('is cut at the end of a line, a sentence or a word rather than inside one', () => {
    const pieces = (text: string, max: number) =>
      split(text, { isMarkdown: false, max }).map((piece) => piece.text);
    expect(pieces('one two\nthree four five', 16)).toEqual(['one two\nthree ', 'four five']);
    expect(pieces('one two th\nree four five', 16)).toEqual(['one two th\n', 'ree four five']);
    expect(pieces('A first one. And a second', 20)).toEqual(['A first one. ', 'And a second']);
  });

  test('has titles of at most 100 characters in the path', () => {
    const [piece] = split(`# ${'😀'.repeat(200)}\nx`, { isMarkdown: true });
    expect(piece?.heading).toBe('😀'.repeat(50));
  });

  test.each([
    ['one line without a space', 'x'.repeat(1_000_000)],
    ['line ends', '\n'.repeat(1_000_000)],
    ['spaces', ' '.repeat(1_000_000)],
    ['hashes', '#'.repeat(1_000_000)],
    ['headings without text', '# \n'.repeat(300_000)],
    ['headings with text', '## a\nb\n'.repeat(140_000)],
    ['a heading of spaces and hashes', `# ${' #'.repeat(500_000)}`],
    ['backticks', '`'.repeat(1_000_000)],
    ['fences that nothing closes', '```\n````\n'.repeat(110_000)],
    ['half fences', '``` `\n'.repeat(160_000)],
    ['dashes', `a\n${'-'.repeat(999_000)}x`],
    ['indented headings', '    # a\n\n'.repeat(110_000)],
  ])('can be 1 MB of %s', (_, text) => {
    const pieces = split(text, { isMarkdown: true });
    expect(pieces.map((piece) => piece.text).join('') === text).toBe(true);
    expect(Math.max(...pieces.slice(0, 1000).map((piece) => piece.text.length))).toBeLessThanOrEqual(
      MAX_CHARACTERS,
    );
  });
});
