/** Blocks as an answer has them, one after the other. */
const BLOCKS = [
  '## A heading with `code`',
  'A paragraph of **some** words with [a link](https://x.example/a) and *emphasis*, long enough to be broken into several lines, as most paragraphs of an answer are.',
  '- one item\n- another one with `code`\n  - and one below it\n- the last',
  '```ts\nexport function sum(a: number, b: number): number {\n  return a + b;\n}\n```',
  '| name | size |\n|---|--:|\n| one | 1 |\n| two | 2 |',
  '> A quotation of one line.',
];

const filled = (bytes: number, line: (at: number) => string) => {
  let text = '';
  for (let at = 0; text.length < bytes; at += 1) text += line(at);
  return text;
};

/** Answers of so many characters or a few more: one of many blocks, and others that are one block. */
export const longAnswers = (bytes: number) => ({
  blocks: filled(bytes, (at) => `${BLOCKS[at % BLOCKS.length]}\n\n`),
  code: `\`\`\`ts\n${filled(bytes, (at) => `const value${at} = compute(${at}, 'text');\n`)}`,
  list: filled(bytes, (at) => `- item ${at} with **strong** words and \`code\`\n`),
  table: `| name | size |\n|---|---|\n${filled(bytes, (at) => `| name ${at} | ${at} bytes |\n`)}`,
  'list with empty lines': filled(bytes, (at) => `${at}. item ${at} with **strong** words\n\n`),
  paragraph: filled(bytes, (at) => `word ${at} of *many* words. `),
  'paragraph of lines': filled(
    bytes,
    (at) => `line ${at} of *many* lines, each as long as a line of a poem is\n`,
  ),
  quotation: filled(bytes, (at) => `> line ${at} with **strong** words\n`),
});

/** Answers whose only block is read anew as a whole each time. */
export const slowAnswers = (bytes: number) => ({
  'list in an item': `- one\n${filled(bytes, (at) => `  - item ${at} with **strong** words\n`)}`,
});
