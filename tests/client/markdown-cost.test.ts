/// <reference lib="dom" />
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { serveElementPage } from '../support/element-page.ts';
import type { FakeLoadBalancer } from '../support/fake-load-balancer.ts';
import { longAnswers, slowAnswers } from '../support/long-markdown.ts';
import { MARKDOWN_PAGE, type MarkdownWindow } from '../support/markdown-page.ts';
import type { ChatWindow } from './pages/chat-view.ts';

type GrowingWindow = ChatWindow & { grow(length: number): Promise<void> };

let front: FakeLoadBalancer;
let page: Page;
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  front = await serveElementPage(`${MARKDOWN_PAGE} import '../../../tests/client/pages/chat-view.ts';`);
  ({ page } = await chromium.open(`${front.url}/`));
  await page.waitForFunction('globalThis.newView && globalThis.show');
});
afterAll(() => front?.close());

/** How many frames are measured. */
const FRAMES = 40;

interface Growth {
  readonly text: string;
  readonly length: number;
  /** Without pauses, each frame draws: a view without a clock does not rest. */
  readonly hasPauses?: boolean;
}

/**
 * The CPU time of script, style and layout that the page's thread takes for each frame in which the answer of a chat grows
 * by 200 characters to `length`, in ms, the shortest first. A clock would also count what other programs take.
 */
async function framesMs({ text, length, hasPauses = false }: Growth): Promise<number[]> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const spentMs = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    const of = (wanted: string) => Number(metrics.find(({ name }) => name === wanted)?.value) * 1000;
    return of('ScriptDuration') + of('RecalcStyleDuration') + of('LayoutDuration');
  };
  await page.reload();
  await page.waitForFunction('globalThis.newView && globalThis.show');
  await page.evaluate(
    ({ text, hasPauses }) => {
      const window = globalThis as GrowingWindow;
      if (!hasPauses) performance.now = () => 0;
      window.show();
      const [first, last] = [window.question('Go on.'), window.answer({ state: 'streaming' })];
      window.grow = (length) =>
        new Promise((resolve) =>
          // Not behind an `await`: Chromium does not count that as script.
          requestAnimationFrame(() => {
            const answer = { ...last, parts: [{ type: 'text' as const, text: text.slice(0, length) }] };
            window.set({ status: 'streaming', messages: [first, answer] });
            // What follows the next frame follows all work of this one.
            requestAnimationFrame(() => setTimeout(resolve));
          }),
        );
    },
    { text, hasPauses },
  );
  const grow = (to: number) => page.evaluate((to) => (globalThis as GrowingWindow).grow(to), to);
  for (let frame = FRAMES + 5; frame > FRAMES; frame -= 1) await grow(length - 200 * frame);
  const spent: number[] = [];
  let before = await spentMs();
  for (let frame = FRAMES; frame > 0; frame -= 1) {
    await grow(length - 200 * (frame - 1));
    const now = await spentMs();
    spent.push(now - before);
    before = now;
  }
  await session.detach();
  return spent.sort((one, other) => one - other);
}

/** So many of all frames, from 0 to 1, take no longer than this. */
const share = (sorted: readonly number[], part: number) =>
  Number(sorted[Math.ceil(part * sorted.length) - 1]);

/** The CPU time that the page's thread takes to show a whole text, in ms. */
async function wholeMs(text: string): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const taskMs = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    return Number(metrics.find(({ name }) => name === 'TaskDuration')?.value) * 1000;
  };
  const before = await taskMs();
  const shown = await page.evaluate((text) => {
    const { root, show } = (globalThis as MarkdownWindow).newView();
    show(text, true);
    root.remove();
    return root.textContent?.replace(/\s/g, '').length;
  }, text);
  const ms = (await taskMs()) - before;
  await session.detach();
  expect(shown).toBeGreaterThan(0);
  return ms;
}

const many = (part: string) => part.repeat(50_000 / part.length);
/** Texts of 50 KB for which marked alone, or Chromium with a `dir` that it works out anew, takes a second or more. */
const SLOW: Readonly<Record<string, string>> = {
  'dotted word before an @': `${many('a.')}@`,
  'dotted word': many('a-_.'),
  'word of capitals and underscores': many('A1_'),
  'word of underscores': many('a_'),
  'word that begins with underscores': many('_a'),
  'row of opened emphasis': many('**a'),
  'run of spaces': `a${many(' ')}b`,
  'run of spaces in a heading': `# a${many(' ')}b`,
  'address of brackets': `http://a${many(')')}`,
  'paragraph of short lines': many('a\n'),
};

const { blocks, ...ofOneBlock } = longAnswers(50_000);

describeInChromium('an answer of 50 KB that grows', () => {
  test('costs a frame hardly more than a short one', async () => {
    const short = share(await framesMs({ text: blocks, length: 10_000 }), 0.5);
    const long = share(await framesMs({ text: blocks, length: 50_000 }), 0.5);
    expect(long / short).toBeLessThan(3);
  });

  test.each(Object.entries({ blocks, ...ofOneBlock }))(
    'costs 19 of 20 frames less than 16 ms each if it is: %s',
    async (_, text) => {
      const spent = await framesMs({ text, length: 50_000 });
      expect(share(spent, 0.95)).toBeLessThan(16);
    },
  );

  test.each(Object.entries(slowAnswers(50_000)))(
    'leaves time for other work if it is: %s',
    async (_, text) => {
      const spent = await framesMs({ text, length: 50_000, hasPauses: true });
      const mean = spent.reduce((sum, ms) => sum + ms) / spent.length;
      // Two frames of a screen with 60 in a second.
      expect(mean).toBeLessThan(33);
    },
  );
});

describeInChromium('an answer of 50 KB without an empty line', () => {
  test.each(Object.entries(SLOW))('is shown in less than half a second if it is a %s', async (_, text) => {
    expect(await wholeMs(text)).toBeLessThan(500);
  });
});
