/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { Page } from 'playwright-core';
import type { ShowMarkdown } from '../../src/client/element/markdown/markdown-view.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { serveElementPage } from '../harness/browser/element-page.ts';
import { ROOT } from '../harness/documents/sources.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';

/** The script of a page with the view of Markdown; `hit` counts scripts that ran. */
const MARKDOWN_PAGE = `
  import { markdownView } from './markdown/markdown-view.ts';
  const words = { copy: 'Copy', code: 'Code', table: 'Table', formula: 'Formula' };
  globalThis.refused = [];
  globalThis.hits = 0;
  globalThis.hit = globalThis.alert = () => { hits += 1; };
  addEventListener('securitypolicyviolation', (event) => refused.push(event.violatedDirective + ' ' + event.blockedURI));
  globalThis.newView = () => {
    const root = document.createElement('div');
    document.querySelector('main').append(root);
    return { root, show: markdownView(root, words) };
  };
`;

/** The globals of that page. */
type MarkdownWindow = typeof globalThis & {
  readonly refused: string[];
  readonly hits: number;
  newView(): { root: HTMLElement; show: ShowMarkdown };
};

/** Pseudo-random numbers from 0 to 1, the same for the same seed (mulberry32), and a choice by them. */
function randomOf(seed: number) {
  let state = seed;
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { random, oneOf: <T>(list: readonly T[]) => list[Math.floor(random() * list.length)] as T };
}

const split = (...lines: readonly string[]) => lines.flatMap((line) => line.split(' '));

const ADDRESSES = [
  ...split(
    'javascript:hit() JaVaScRiPt:hit() java\tscript:hit() \x01javascript:hit() javascript&colon;hit()',
    'javascript&#58;hit() &#106;avascript:hit() &#x6a;avascript&#x3a;hit() vbscript:hit() x:hit()',
    'data:text/html,<script>hit()</script> blob:https://evil.example/1 file:///etc/passwd //evil.example/x',
    'http://evil.example/x.png https://evil.example/"onerror="hit() /own/x.png # \\\\evil.example',
    'http://localhost:1/x mailto:a@evil.example https:evil.example HTTP://EVIL.example ftp://evil.example',
  ),
  ...['data:image/svg+xml,<svg onload=hit()>', 'https://evil.example/x y', ''],
];

const HTML = [
  ...['<script>hit()</script>', '<script src=http://evil.example/x.js>', '<img src=x onerror=hit()>'],
  ...['<svg/onload=hit()>', '<iframe srcdoc="<script>hit()</script>">', '<base href=//evil.example/>'],
  '<link rel=stylesheet href=//evil.example/x.css>',
  '<style>@import "http://evil.example/x.css"</style>',
  '<div style="background:url(http://evil.example/x)">',
  '<meta http-equiv=refresh content="0;url=http://evil.example">',
  ...[
    '<object data=http://evil.example>',
    '<a href="javascript:hit()">x</a>',
    '<?x',
    '<details open ontoggle=hit()>',
  ],
  '<math><mi//xlink:href="data:x,<script>hit()</script>">',
  ...['<!--', '-->', '<![CDATA[', ']]>', '</pre></code></div>', '<template><img src=http://evil.example>'],
  ...['<form id=x name=body action=//evil.example>', '&lt;img src=x onerror=hit()&gt;'],
  ...split('&#60;script&#62;hit()&#60;/script&#62; &amp;lt;b&amp;gt; &#0; &#xd800; &#9999999; &constructor;'),
];
const MARKS = [
  ...split(
    '[ ] ( ) ![ ]( < > " \' ` `` ``` ~~~ * ** _ ~~ \\ | : 1 $ $$ \\( \\) \\[ \\] $x^2$ [a] [a][] [^1]',
  ),
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
    '- [x] ',
    '---\n',
    '===\n',
  ],
  ...['| a | b |\n|---|:-:|\n', '| c |\n', '```js onload=hit()\n', '$$\n', '[a]: ', '[__proto__]'],
  ...['[__proto__]: http://evil.example\n', '[constructor]', '\u202e', '\u0000', '\ud800', '😀'],
  ...split('https://evil.example/a_b_c www.evil.example a@evil.example \\pmb{x} \\errmessage{x}'),
  ...split('\\href{javascript:hit()}{x} \\includegraphics{http://evil.example/x.png}'),
  '\\htmlStyle{background:url(//evil.example)}{x}',
];
const PARTS = [...HTML, ...MARKS];

/** A random text of Markdown, HTML and addresses, which are meant to run a script or to ask another server. */
function hostileMarkdown(seed: number): string {
  const { random, oneOf } = randomOf(seed);
  const link = () => {
    const address = oneOf(ADDRESSES);
    return oneOf([
      ...[`[x](${address})`, `[x](<${address}> "t")`, `![x](${address})`, `![x](<${address}>)`],
      ...[`<${address}>`, `[a]: ${address}\n`, `[a]: <${address}>\n`, `<img src="${address}">`],
      `[![x](${address})](${oneOf(ADDRESSES)})`,
    ]);
  };
  const part = () => (random() < 0.4 ? link() : oneOf(PARTS));
  return Array.from({ length: 1 + Math.floor(random() * 25) }, part).join('');
}

/** What stands before a long block, and how its lines begin. */
const BLOCKS = [
  ...[
    ['', ''],
    ['', '- '],
    ['', '3. '],
    ['', '- [x] '],
    ['', '> '],
    ['', '    '],
    ['  ~~~\n', '  '],
  ],
  ...[
    ['```js\n', ''],
    ['| a | b |\n|---|:-:|\n', '| '],
    ['a | b\n-|-\n', 'x | '],
  ],
  ...[
    ['Before\n\n', '  * '],
    ['- one\n', '  - '],
  ],
] as const;
const ENDS = [
  ...[
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
  ],
];

/**
 * A random text of several thousand characters that is mostly one block. Some of its lines are of another kind, or hold
 * what a hostile text has.
 */
function longMarkdown(seed: number): string {
  const { random, oneOf } = randomOf(seed);
  const [before, start] = oneOf(BLOCKS);
  const parts = PARTS.filter((part) => !part.includes(']:'));
  const strange = random() < 0.5 ? 0 : 0.02;
  const blank = oneOf([0, 0, 0.01, 1]);
  const lineLength = oneOf([3, 30, 400]);
  const word = () => oneOf(['word', '*two*', '`c`', 'a|b', '1.']);
  let text: string = before;
  while (text.length < 6_000) {
    text += start + Array.from({ length: 1 + random() * lineLength }, word).join(' ');
    if (random() < strange * 4) text += oneOf(parts);
    text += random() < blank ? '\n\n' : '\n';
    if (random() < strange) text += oneOf([...parts, ...ENDS]);
  }
  return text + oneOf(ENDS);
}

/**
 * Shows texts in the page, each one first in these parts of its length. Returns what of the page is
 * on no list of what is allowed.
 */
function faultsOf(page: Page, texts: readonly string[], parts = [0.3, 0.7]): Promise<string[]> {
  return page.evaluate(
    ([all, parts]) => {
      const { newView } = globalThis as MarkdownWindow;
      const MATH =
        'math semantics annotation mrow mi mo mn mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mlabeledtr mstyle mpadded mphantom menclose'.split(
          ' ',
        );
      const MATH_ATTRIBUTES =
        'xmlns display dir encoding mathvariant mathcolor mathbackground mathsize stretchy fence separator symmetric form lspace rspace minsize maxsize largeop movablelimits accent accentunder width height depth voffset linethickness scriptlevel displaystyle columnalign columnspacing columnlines rowspacing rowlines notation linebreak class'.split(
          ' ',
        );
      const NAMES =
        'P BR STRONG EM DEL CODE A H3 HR UL OL LI BLOCKQUOTE PRE DIV SPAN BUTTON TABLE THEAD TBODY TR TH TD'.split(
          ' ',
        );
      const ATTRIBUTES =
        'dir part href target rel class role tabindex aria-label title type start data-depth data-align data-copy-code'.split(
          ' ',
        );
      const faults: string[] = [];
      const own = newView();
      own.show('    code', true);
      /** The one icon that is the chat's own. */
      const icon = own.root.querySelector('[data-copy-code] > svg') as Element;
      own.root.remove();
      const judge = (element: Element, text: string) => {
        const fault = (what: string) => faults.push(`${what} of ${JSON.stringify(text)}`);
        const [names, attributes] =
          element instanceof MathMLElement ? [MATH, MATH_ATTRIBUTES] : [NAMES, ATTRIBUTES];
        if (!names.includes(element.nodeName)) fault(`the element ${element.nodeName}`);
        for (const { name } of element.attributes)
          if (!attributes.includes(name)) fault(`the attribute ${name}`);
        if (!(element instanceof HTMLAnchorElement)) return;
        if (!['http:', 'https:', 'mailto:'].includes(element.protocol)) fault(`the link ${element.href}`);
        if (element.rel !== 'noopener noreferrer') fault('a link without rel');
        if (element.parentElement?.closest('a')) fault('a link in a link');
      };
      for (const text of all) {
        const { root, show } = newView();
        for (const part of parts) show(text.slice(0, text.length * part), false);
        show(text, true);
        for (const one of root.querySelectorAll('[data-copy-code] > svg'))
          if (one.isEqualNode(icon)) one.remove();
        for (const element of root.querySelectorAll('*')) judge(element, text);
        root.remove();
      }
      return faults;
    },
    [texts, parts] as const,
  );
}

/** What was run, refused or asked for in the page since its start. */
async function traces(page: Page): Promise<{ hits: number; refused: string[] }> {
  // A request that was begun is known after the next two frames.
  return page.evaluate(async () => {
    for (let frames = 0; frames < 2; frames += 1)
      await new Promise((resolve) => requestAnimationFrame(resolve));
    const { hits, refused } = globalThis as MarkdownWindow;
    return { hits, refused };
  });
}

/** Waits until what is loaded with the first code and the first math is there. */
async function loadAll(page: Page): Promise<void> {
  await page.evaluate(() => {
    const { root, show } = (globalThis as MarkdownWindow).newView();
    root.id = 'loaded';
    show('```js\nif\n```\n\n$x$', true);
  });
  await page.locator('#loaded span.hljs-keyword').waitFor();
  await page.locator('#loaded math').waitFor();
}

/** `HOSTILE_INPUTS` sets another number. */
const INPUTS = Number(process.env.HOSTILE_INPUTS ?? 500);

let front: FakeLoadBalancer;
let page: Page;
let complaints: string[];
const asked: string[] = [];
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  front = await serveElementPage(MARKDOWN_PAGE);
  ({ page, complaints } = await chromium.open(`${front.url}/`));
  await page.waitForFunction('globalThis.newView');
  await loadAll(page);
  page.on('request', (request) => asked.push(request.url()));
});
afterEach(async () => {
  expect(await traces(page)).toEqual({ hits: 0, refused: [] });
  expect({ asked, complaints }).toEqual({ asked: [], complaints: [] });
});
afterAll(() => front?.close());

/** The page's HTML of a text, each of whose pieces is drawn: without a clock, the view makes no pauses. */
const shown = (...pieces: readonly string[]) =>
  page.evaluate((pieces) => {
    Object.assign(performance, { now: () => 0 });
    const { root, show } = (globalThis as MarkdownWindow).newView();
    let text = '';
    for (const [at, piece] of pieces.entries()) {
      text += piece;
      show(text, at === pieces.length - 1);
    }
    root.remove();
    return root.innerHTML;
  }, pieces);

/** What an answer shows: the text of its formulas and of the rest. */
const formulasIn = (text: string) =>
  page.evaluate((text) => {
    const { root, show } = (globalThis as MarkdownWindow).newView();
    show(text, true);
    root.remove();
    const formulas = [...root.querySelectorAll('math')].map(
      (math) => math.querySelector('annotation')?.textContent,
    );
    for (const math of root.querySelectorAll('math')) math.replaceWith('ƒ');
    return { formulas, rest: root.textContent };
  }, text);

const LINK = 'target="_blank" rel="noopener noreferrer"';
const p = (html: string) => `<p dir="auto">${html}</p>`;

describeInChromium('an answer in Markdown', () => {
  test.each([
    ['Hello\nthere', p('Hello<br>there')],
    ['**a** *b* ~~c~~ `d`', p('<strong>a</strong> <em>b</em> <del>c</del> <code part="code">d</code>')],
    ['#### Deep', '<h3 dir="auto" data-depth="4">Deep</h3>'],
    ['## **a** `b` ##', '<h3 dir="auto" data-depth="2"><strong>a</strong> <code part="code">b</code></h3>'],
    ['##', '<h3 dir="auto" data-depth="2"></h3>'],
    ['- a\n- b\n  1. c', '<ul><li dir="auto">a</li><li dir="auto">b<ol><li dir="auto">c</li></ol></li></ul>'],
    ['3. a\n4. b', '<ol start="3"><li dir="auto">a</li><li dir="auto">b</li></ol>'],
    ['- [x] a\n- [ ] b', '<ul><li dir="auto">☑ a</li><li dir="auto">☐ b</li></ul>'],
    ['> a\n\n---', `<blockquote>${p('a')}</blockquote><hr>`],
    [
      '```js\nif (a < b) {}\n```',
      '<div class="code" part="code-block"><div class="code-head"><span>js</span><button type="button" part="button copy-code" class="icon" data-copy-code="" aria-label="Copy" title="Copy"><svg viewBox="0 0 24 24" aria-hidden="true"><path d="M9 9h11v11H9zM5.5 15H4V4h11v1.5"></path></svg></button></div><pre dir="ltr" role="group" tabindex="0" aria-label="Code (js)"><code><span class="hljs-keyword">if</span> (a &lt; b) {}</code></pre></div>',
    ],
    [
      '| a | b |\n|---|--:|\n| 1 | 2 |',
      '<div class="table" role="group" tabindex="0" aria-label="Table"><table><thead><tr><th dir="auto">a</th><th dir="auto" data-align="right">b</th></tr></thead><tbody><tr><td dir="auto">1</td><td dir="auto" data-align="right">2</td></tr></tbody></table></div>',
    ],
    ['&lt;b&gt; &copy; &#x41; &nothing;', p('&lt;b&gt; © A &amp;nothing;')],
  ])('is shown by elements: %j', async (text, html) => {
    expect(await shown(text)).toBe(html);
  });

  test.each([
    ['$$\n\\frac{a}{b}\n$$', ['\\frac{a}{b}'], 'ƒ'],
    ['so\n\\[ x_1 *y* \\]\nit is', ['x_1 *y*'], 'soƒit is'],
    ['- a\n  $$\n  - x\n  $$\n- b', ['- x'], 'aƒb'],
    ['with \\(a_1\\), $b_1$-axis, ($c$) and $$d$$.', ['a_1', 'b_1', 'c', 'd'], 'with ƒ, ƒ-axis, (ƒ) and ƒ.'],
    ['$\\text{if } x > 0$', ['\\text{if } x > 0'], 'ƒ'],
  ])('shows math as MathML: %j', async (text, formulas, rest) => {
    expect(await formulasIn(text)).toEqual({ formulas, rest });
  });

  test('keeps as text what is no math', async () => {
    const texts = [
      ...['$5 and $6', '$5, or €6/$7', 'US$5, US$6', '$5/month or 10$', 'I have 5$ and you 6$.', '$20-$30'],
      ...['$HOME/bin:$PATH', '$HOME and $PATH', 'Cost: ($5)/($6)', 'between $5k and 6k$.', '$ x $'],
      '$/€ and €/$ rates',
      // Not closed, no math, or refused.
      ...['$$x', '\\(x', '$\\frac{a}$', '$\\nothing$', '$\\href{https://x.example}{x}$', '$\\pmb{x}$'],
      // A few of its characters would become very many elements.
      ...['$\\def\\a{x}\\a$', '$\\newcommand{\\a}{x}\\a$', '$\\let\\a=x\\a$'],
      // Too long, and too deep.
      ...[`$$\n${'x'.repeat(1_001)}\n$$`, `$${'\\sqrt{'.repeat(130)}x${'}'.repeat(130)}$`],
    ];
    for (const text of texts) {
      const rest = text.replace(/^\\\(/, '(').replaceAll('\n', '');
      expect(await formulasIn(text)).toEqual({ formulas: [], rest });
    }
    expect(await shown('$$\n\\frac{a}\n$$')).toBe(p('$$<br>\\frac{a}<br>$$'));
  });

  test('shows each command of KaTeX by what may be there, or as text', async () => {
    const source = readFileSync(join(ROOT, 'node_modules/katex/dist/katex.mjs'), 'utf8');
    const commands = [...new Set(source.match(/(?<=["'])\\\\[A-Za-z@]+(?=["'])/g))].map((one) =>
      one.slice(1),
    );
    expect(commands.length).toBeGreaterThan(500);
    const texts = commands.flatMap((one) =>
      ['x', '{a}', '{a}{b}', '{red}{blue}{c}', '{1em}{2em}', '[a]{b}_c^d'].map(
        (given) => `$$${one} ${given}$$`,
      ),
    );
    // Only what is whole is math.
    expect(await faultsOf(page, texts, [])).toEqual([]);
  });

  test('shows letters of other alphabets, which browsers take for usual ones', async () => {
    const html = await shown('$\\mathbb{R} \\mathcal{LA} \\mathfrak{g}$');
    expect(html.replace(/<annotation.*<\/annotation>/, '').replace(/<[^>]*>/g, '')).toBe('ℝℒ𝒜𝔤');
  });

  test('gives code its colours when it ends, and keeps it plain before and in other languages', async () => {
    const open = '```js\nconst a = 1;\n';
    expect(await shown(open)).toContain('<code>const a = 1;</code>');
    expect(await shown(open, '```')).toContain('<span class="hljs-keyword">const</span> a = ');
    expect(await shown('```klingon\nconst a = 1;\n```')).toContain('<code>const a = 1;</code>');
    expect(await shown('```\nconst a = 1;\n```')).toContain('<code>const a = 1;</code>');
    const lines = 'const a = 1;\n'.repeat(350);
    const pieces = ['```js\n', lines, lines, '```', '\n\nEnd'];
    expect((await shown(...pieces)).match(/hljs-keyword/g)).toHaveLength(700);
    expect(await shown(`\`\`\`js\n${lines.repeat(4)}\`\`\``)).not.toContain('hljs');
  });

  test.each(['code-colors', 'math-element'])('stays as it came if %s cannot be had', async (name) => {
    const tab = await chromium.open('about:blank');
    const refused: string[] = [];
    await tab.page.route(`**/${name}-*.js`, (route) => {
      refused.push(name);
      return route.fulfill({ status: 404 });
    });
    await tab.page.goto(`${front.url}/`);
    await tab.page.waitForFunction('globalThis.newView');
    const html = await tab.page.evaluate(async () => {
      const { root, show } = (globalThis as MarkdownWindow).newView();
      const text = '```js\nif\n```\n\nof $x$\n\n$$\ny\n$$\n\n';
      show(text, false);
      while (!root.querySelector('.hljs-keyword, math'))
        await new Promise((resolve) => requestAnimationFrame(resolve));
      // Nobody asks again.
      show(`${text}End`, true);
      return root.innerHTML;
    });
    if (name === 'code-colors') expect(html).toContain('<code>if</code>');
    else expect(html).toContain(`${p('of $x$')}${p('$$<br>y<br>$$')}${p('End')}`);
    expect(refused).toEqual([name]);
    // Chromium itself writes one line for the answer of 404.
    expect(tab.complaints.filter((one) => !/Failed to load resource.*404/.test(one))).toEqual([]);
  });

  test('shows HTML as text', async () => {
    expect(await shown('<b>a</b> <img src=x onerror=hit()>\n\n<script>\nhit()\n</script>')).toBe(
      p('&lt;b&gt;a&lt;/b&gt; &lt;img src=x onerror=hit()&gt;') +
        p('&lt;script&gt;<br>hit()<br>&lt;/script&gt;'),
    );
  });

  test.each([
    ['[a](https://x.example/?b&amp;c)', 'https://x.example/?b&amp;c', 'a'],
    ['<http://x.example/?b&amp;c>', 'http://x.example/?b&amp;amp;c', 'http://x.example/?b&amp;amp;c'],
    ['https://x.example', 'https://x.example/', 'https://x.example'],
    ['[a][b]\n\n[b]: mailto:c@x.example', 'mailto:c@x.example', 'a'],
    // A picture would tell the other server who reads this.
    ['![A cat](https://x.example/cat.png)', 'https://x.example/cat.png', 'A cat'],
    ['![](https://x.example/cat.png)', 'https://x.example/cat.png', 'https://x.example/cat.png'],
    ['[![A cat](https://x.example/cat.png)](https://x.example/)', 'https://x.example/', 'A cat'],
  ])('links to %j in a new tab that knows nothing of this one', async (text, href, html) => {
    expect(await shown(text)).toBe(p(`<a part="link" href="${href}" ${LINK}>${html}</a>`));
  });

  test('shows the source of a link that leads elsewhere', async () => {
    for (const text of [
      ...['[a](javascript:hit())', '[a](javascript&#58;hit())', '[a](data:text/html,x)', '[a](/auth/login)'],
      ...['![a](/own.png)', '[a](//x.example)', '![a](data:image/png;base64,AA)', '[a](blob:x)'],
    ])
      expect(await shown(text)).toBe(p(text.replaceAll('&', '&amp;')));
  });

  test('ends as the same, in whatever pieces it came', async () => {
    const texts = [
      '1. a\n\n2. b\n\n3. c\n\nEnd',
      '- a\n\n  b\n\n- c\n\n    d\n',
      'Title\n===\n\nText [a] and [b].\n\n```js\nx\n\n\ny\n```\n\n| a |\n|---|\n| 1 |\n\n[a]: http://a.example\n[b]: http://b.example',
      '> a\n\n> b\nc\n\n<div>\n\n**x**\r\n\r\ny\r\rz\n\n***\n\n    code\n\n    more\n\nend',
    ];
    const short = fc.oneof(fc.constantFrom(...texts), fc.nat(1e6).map(hostileMarkdown));
    const cases = fc.oneof(
      fc.record({ text: short, sizes: fc.infiniteStream(fc.integer({ min: 1, max: 4 })) }),
      fc.record({
        text: fc.nat(1e6).map(longMarkdown),
        sizes: fc.infiniteStream(fc.integer({ min: 20, max: 300 })),
      }),
    );
    await fc.assert(
      fc.asyncProperty(cases, async ({ text, sizes }) => {
        const pieces: string[] = [];
        for (let from = 0; from < text.length; from += pieces.at(-1)?.length ?? 0)
          pieces.push(text.slice(from, from + Number(sizes.next().value)));
        expect(await shown(...pieces)).toBe(await shown(text));
      }),
      { numRuns: 60, endOnFailure: true },
    );
  });

  test('is text where it lies in itself too deep', async () => {
    for (const mark of ['> ', '>', '- ', '1. ', '*', '_', '[', '![', '~', '`', '<', '&']) {
      const end = mark.trim().split('').reverse().join('');
      const html = await shown(`${mark.repeat(1_000)}x${end.repeat(1_000)}`);
      let [depth, deepest] = [0, 0];
      for (const [, close] of html.replace(/<(br|hr)>/g, '').matchAll(/<(\/?)/g)) {
        depth += close ? -1 : 1;
        deepest = Math.max(deepest, depth);
      }
      expect({ mark, isFlat: deepest < 60, hasText: html.includes('x') }).toEqual({
        ...{ mark, isFlat: true, hasText: true },
      });
    }
  });

  test('is shown whole if it has very many lines', async () => {
    const html = await shown(`${'a\n'.repeat(70_000)}**b**`);
    expect(html.match(/<br>/g)).toHaveLength(70_000);
    expect(html).toMatch(/^<p dir="auto">a<br>a<br>.*a<br><strong>b<\/strong><\/p>$/);
  });

  test('keeps its format in long paragraphs, and cuts no character into halves', async () => {
    const source = Array.from({ length: 1_000 }, (_, at) => `*${at}*`);
    const wanted = source.map((word) => `<em>${word.slice(1, -1)}</em>`);
    expect(await shown(source.join('\n'))).toBe(p(wanted.join('<br>')));
    expect(await shown(source.join(' '))).toBe(p(wanted.join(' ')));
    const text = `a${'😀'.repeat(3_000)}`;
    expect(await shown(text)).toBe(p(text));
  });

  test('shows a link when all of it is there', async () => {
    const seen = await page.evaluate(() => {
      const { root, show } = (globalThis as MarkdownWindow).newView();
      Object.assign(performance, { now: () => 0 });
      const steps = ['See [it', 's page]', '(https://parcel', '.example)', ' or [', '1] and a[2', '.'];
      let text = '';
      const texts = steps.map((step, at) => {
        text += step;
        show(text, at === steps.length - 1);
        return root.textContent;
      });
      root.remove();
      return texts;
    });
    expect(seen).toEqual([
      ...['See ', 'See ', 'See ', 'See its page', 'See its page or ', 'See its page or [1] and a'],
      'See its page or [1] and a[2.',
    ]);
  });

  test('is shown as its source if it cannot be drawn', async () => {
    const text = await page.evaluate(() => {
      const { root, show } = (globalThis as MarkdownWindow).newView();
      const real = document.createElement;
      show('One\n\ntwo\n\nthree', false);
      document.createElement = () => {
        throw new RangeError('Maximum call stack size exceeded');
      };
      show('One\n\ntwo\n\nthree **four', false);
      document.createElement = real;
      const broken = root.textContent;
      show('One\n\ntwo\n\nthree **four**', true);
      root.remove();
      return [broken, root.innerHTML];
    });
    expect(text).toEqual([
      'One\n\ntwo\n\nthree **four',
      `${p('One')}${p('two')}${p('three <strong>four</strong>')}`,
    ]);
  });

  test('runs no script and asks no server, whatever it says, also without a policy', async () => {
    const texts = Array.from({ length: INPUTS }, (_, seed) => hostileMarkdown(seed));
    // Under the policy, nothing of it is refused.
    expect(await faultsOf(page, texts.slice(0, 100))).toEqual([]);
    // Nothing is refused here: what is asked for shows as a request.
    const bare = await serveElementPage(MARKDOWN_PAGE, '');
    const tab = await chromium.open(`${bare.url}/`);
    await tab.page.waitForFunction('globalThis.newView');
    await loadAll(tab.page);
    tab.page.on('request', (request) => asked.push(request.url()));
    expect(await faultsOf(tab.page, texts)).toEqual([]);
    expect(await traces(tab.page)).toEqual({ hits: 0, refused: [] });
    expect(tab.complaints).toEqual([]);
    await bare.close();
  });
});
