/// <reference lib="dom" />
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { serveElementPage } from '../support/element-page.ts';
import type { FakeLoadBalancer } from '../support/fake-load-balancer.ts';
import { longAnswers } from '../support/long-markdown.ts';
import { MARKDOWN_PAGE, type MarkdownWindow } from '../support/markdown-page.ts';

let front: FakeLoadBalancer;
let page: Page;
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  front = await serveElementPage(MARKDOWN_PAGE);
  ({ page } = await chromium.open(`${front.url}/`));
  await page.waitForFunction('globalThis.newView');
});
afterAll(() => front?.close());

/** How many frames are measured. */
const FRAMES = 30;

/** Without a clock, the view makes no pauses between its drawings. */
const withoutPauses = () => page.evaluate(() => void Object.assign(performance, { now: () => 0 }));

/**
 * The CPU time that the page's thread takes for a frame in which 200 characters are added to a text of `length`, in ms.
 * A clock would also count what other programs take.
 */
async function frameMs(text: string, length: number, hasPauses = true): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const taskMs = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    return Number(metrics.find(({ name }) => name === 'TaskDuration')?.value) * 1000;
  };
  const grow = (from: number, frames: number) =>
    page.evaluate(
      async ({ text, from, frames }) => {
        const window = globalThis as MarkdownWindow & { view?: ReturnType<MarkdownWindow['newView']> };
        window.view ??= window.newView();
        for (let frame = 1; frame <= frames; frame += 1) {
          await new Promise((resolve) => requestAnimationFrame(resolve));
          window.view.show(text.slice(0, from + 200 * frame), false);
        }
        await new Promise((resolve) => requestAnimationFrame(resolve));
      },
      { text, from, frames },
    );
  await page.reload();
  await page.waitForFunction('globalThis.newView');
  if (!hasPauses) await withoutPauses();
  await grow(length - 200 * (FRAMES + 5), 5);
  const before = await taskMs();
  await grow(length - 200 * FRAMES, FRAMES);
  const ms = ((await taskMs()) - before) / FRAMES;
  await session.detach();
  return ms;
}

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
  test('costs a frame less than 16 ms, and hardly more than a short one', async () => {
    const short = await frameMs(blocks, 8_000, false);
    const long = await frameMs(blocks, 50_000, false);
    expect(long).toBeLessThan(16);
    expect(long / short).toBeLessThan(3);
  });

  test.each(Object.entries(ofOneBlock))('leaves time for other work if it is one %s', async (_, text) => {
    // Two frames of a screen with 60 in a second.
    expect(await frameMs(text, 50_000)).toBeLessThan(33);
  });
});

describeInChromium('an answer of 50 KB without an empty line', () => {
  test.each(Object.entries(SLOW))('is shown in less than half a second if it is a %s', async (_, text) => {
    expect(await wholeMs(text)).toBeLessThan(500);
  });
});
