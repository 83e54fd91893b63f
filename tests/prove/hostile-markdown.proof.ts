import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { serveElementPage } from '../harness/browser/element-page.ts';
import { hostileMarkdown } from '../harness/browser/hostile-markdown.ts';
import { faultsOf, MARKDOWN_PAGE, traces } from '../harness/browser/markdown-page.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';

const INPUTS = Number(process.env.HOSTILE_INPUTS ?? 5_000);
const BATCH = 500;
/** Nothing is refused here: what is asked for shows as a request. */
const NO_POLICY = '';

let fronts: FakeLoadBalancer[];
const chromium = oneChromium();
beforeAll(async () => {
  fronts = [await serveElementPage(MARKDOWN_PAGE), await serveElementPage(MARKDOWN_PAGE, NO_POLICY)];
});
afterAll(() => Promise.all(fronts.map((front) => front.close())));

/** Shows all inputs in the page; returns what was found, and the addresses that were asked for. */
async function proved(page: Page): Promise<{ faults: string[]; asked: string[] }> {
  const asked: string[] = [];
  await page.waitForFunction('globalThis.newView');
  page.on('request', (request) => asked.push(request.url()));
  const faults: string[] = [];
  for (let from = 0; from < INPUTS; from += BATCH) {
    const texts = Array.from({ length: BATCH }, (_, at) => hostileMarkdown(from + at));
    faults.push(...(await faultsOf(page, texts)));
  }
  expect(await traces(page)).toEqual({ hits: 0, refused: [] });
  return { faults, asked };
}

describeInChromium('5,000 hostile answers', () => {
  test.each([
    { at: 0, name: 'the policy of the chat page' },
    { at: 1, name: 'no policy' },
  ])('run no script and ask no server, with $name', async ({ at }) => {
    const { page, complaints } = await chromium.open(`${fronts[at]?.url}/`);
    expect(await proved(page)).toEqual({ faults: [], asked: [] });
    expect(complaints).toEqual([]);
  });
});
