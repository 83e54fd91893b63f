/** Pseudo-random numbers from 0 to 1, the same for the same seed (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const ADDRESSES = [
  ...[
    'javascript:hit()',
    'JaVaScRiPt:hit()',
    'java\tscript:hit()',
    '\x01javascript:hit()',
    'javascript&colon;hit()',
  ],
  ...[
    'javascript&#58;hit()',
    '&#106;avascript:hit()',
    '&#x6a;avascript&#x3a;hit()',
    'vbscript:hit()',
    'data:text/html,<script>hit()</script>',
  ],
  ...[
    'data:image/svg+xml,<svg onload=hit()>',
    'blob:https://evil.example/1',
    'file:///etc/passwd',
    '//evil.example/x',
  ],
  ...[
    'http://evil.example/x.png',
    'https://evil.example/"onerror="hit()',
    'https://evil.example/x y',
    '/own/x.png',
    '#',
    '',
    '\\\\evil.example',
  ],
  ...[
    'http://localhost:1/x',
    'mailto:a@evil.example',
    'https:evil.example',
    'HTTP://EVIL.example',
    'ftp://evil.example',
    'x:hit()',
  ],
];

const PARTS = [
  ...[
    '<script>hit()</script>',
    '<script src=http://evil.example/x.js>',
    '<img src=x onerror=hit()>',
    '<svg/onload=hit()>',
  ],
  ...[
    '<iframe srcdoc="<script>hit()</script>">',
    '<link rel=stylesheet href=//evil.example/x.css>',
    '<base href=//evil.example/>',
  ],
  ...[
    '<style>@import "http://evil.example/x.css"</style>',
    '<div style="background:url(http://evil.example/x)">',
    '<meta http-equiv=refresh content="0;url=http://evil.example">',
  ],
  ...[
    '<object data=http://evil.example>',
    '<a href="javascript:hit()">x</a>',
    '<details open ontoggle=hit()>',
    '<math><mi//xlink:href="data:x,<script>hit()</script>">',
  ],
  ...[
    '<!--',
    '-->',
    '<![CDATA[',
    ']]>',
    '<?x',
    '</pre></code></div>',
    '<template><img src=http://evil.example>',
    '<form id=x name=body action=//evil.example>',
  ],
  ...[
    '&lt;img src=x onerror=hit()&gt;',
    '&#60;script&#62;hit()&#60;/script&#62;',
    '&amp;lt;b&amp;gt;',
    '&#0;',
    '&#xd800;',
    '&#9999999;',
    '&constructor;',
  ],
  ...[
    '[',
    ']',
    '(',
    ')',
    '![',
    '](',
    '<',
    '>',
    '"',
    "'",
    '`',
    '``',
    '```',
    '```js onload=hit()\n',
    '~~~',
    '*',
    '**',
    '_',
    '~~',
    '\\',
    '|',
    ':',
  ],
  ...[
    '\n',
    '\n\n',
    '\r',
    '\r\n',
    '\t',
    '    ',
    '# ',
    '###### ',
    '> ',
    '- ',
    '1. ',
    '1',
    '- [x] ',
    '---\n',
    '===\n',
    '| a | b |\n|---|:-:|\n',
    '| c |\n',
  ],
  ...[
    '$',
    '$$',
    '$$\n',
    '\\(',
    '\\)',
    '\\[',
    '\\]',
    '$x^2$',
    '\\href{javascript:hit()}{x}',
    '\\includegraphics{http://evil.example/x.png}',
    '\\htmlStyle{background:url(//evil.example)}{x}',
    '\\pmb{x}',
    '\\errmessage{x}',
  ],
  ...[
    '[a]',
    '[a][]',
    '[a]: ',
    '[__proto__]',
    '[__proto__]: http://evil.example\n',
    '[constructor]',
    '[^1]',
    '\u202e',
    '\u0000',
    '\ud800',
    '😀',
    'https://evil.example/a_b_c',
    'www.evil.example',
    'a@evil.example',
  ],
];

/** A random text of Markdown, HTML and addresses, which are meant to run a script or to ask another server. */
export function hostileMarkdown(seed: number): string {
  const random = randomNumbers(seed);
  const oneOf = (list: readonly string[]) => list[Math.floor(random() * list.length)] as string;
  const link = () => {
    const address = oneOf(ADDRESSES);
    return oneOf([
      ...[
        `[x](${address})`,
        `[x](<${address}> "t")`,
        `![x](${address})`,
        `![x](<${address}>)`,
        `<${address}>`,
      ],
      ...[
        `[![x](${address})](${oneOf(ADDRESSES)})`,
        `[a]: ${address}\n`,
        `[a]: <${address}>\n`,
        `<img src="${address}">`,
      ],
    ]);
  };
  const part = () => (random() < 0.4 ? link() : oneOf(PARTS));
  return Array.from({ length: 1 + Math.floor(random() * 25) }, part).join('');
}

/** How the lines of a long block begin, and what stands before them all. */
const BLOCKS = [
  ...[
    ['', ''],
    ['', '- '],
    ['', '3. '],
    ['', '- [x] '],
  ],
  ...[
    ['```js\n', ''],
    ['  ~~~\n', '  '],
    ['| a | b |\n|---|:-:|\n', '| '],
    ['Before\n\n', '  * '],
  ],
  ...[
    ['', '> '],
    ['- one\n', '  - '],
    ['a | b\n-|-\n', 'x | '],
    ['', '    '],
  ],
] as const;
const ENDS = [
  '',
  '---',
  '===',
  '```',
  '~~~',
  '| a |\n|---|',
  '- ',
  '2',
  '2. x',
  '\n\nEnd\n\nand more.',
  '\n\n- x\n\n- y',
];

/**
 * A random text of several thousand characters that is mostly one block. Some of its lines are of another kind, or hold
 * what a hostile text has.
 */
export function longMarkdown(seed: number): string {
  const random = randomNumbers(seed);
  const oneOf = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)] as T;
  const [before, start] = oneOf(BLOCKS);
  const parts = PARTS.filter((part) => !part.includes(']:'));
  const strange = random() < 0.5 ? 0 : 0.02;
  const blank = oneOf([0, 0, 0.01, 1]);
  const lineLength = oneOf([3, 30, 400]);
  let text = before;
  while (text.length < 6_000) {
    const words = Array.from({ length: 1 + random() * lineLength }, () =>
      oneOf(['word', '*two*', '`c`', 'a|b', '1.']),
    );
    text += start + words.join(' ');
    if (random() < strange * 4) text += oneOf(parts);
    text += random() < blank ? '\n\n' : '\n';
    if (random() < strange) text += oneOf([...parts, ...ENDS]);
  }
  return text + oneOf(ENDS);
}
