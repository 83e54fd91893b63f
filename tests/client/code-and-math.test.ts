/// <reference lib="dom" />
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { lastAnswer, say, startDemoRelay } from '../harness/browser/chat-page.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { stopProcesses } from '../harness/relay/process.ts';

/** What the bot repeats. Its math is in the middle of a sentence, so that it comes while the answer grows. */
const CODE = 'This code:\n\n```js\nconst half = 1 / 2;\n```';
const MATH = 'It is $\\frac{1}{2}$ of it, for $5 and no more.';

let url: string;
/** A page of another origin with the element of the relay. */
let other: FakeLoadBalancer;
const chromium = oneChromium();
beforeAll(async () => {
  other = await startFakeLoadBalancer({
    answer(_req, res) {
      res.writeHead(200, { 'Content-Type': 'text/html' });
      res.end(
        `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Other</title><link rel="icon" href="data:,"><script type="module" src="${url}/client/bot-chat.js"></script></head><body><bot-chat bot="demo/echo"></bot-chat></body></html>`,
      );
      return true;
    },
  });
  const settings = { AUTH_MODE: 'guest', BOTS: 'demo/echo', ALLOWED_ORIGINS: pageOf(other.url) };
  url = pageOf(`http://127.0.0.1:${await startDemoRelay(settings).listening()}`);
});
afterAll(async () => {
  await other?.close();
  await stopProcesses();
});

/** The same site for both, so that the session's cookie is sent. */
const pageOf = (address: string) => address.replace('127.0.0.1', 'localhost');

/** The names of the files that the page has loaded with the first code or math, without their hash. */
const later = (asked: readonly string[]) =>
  asked.flatMap((address) => /\/client\/(\w+-\w+)-[A-Z0-9]{8}\.js$/.exec(address)?.[1] ?? []);

describeInChromium('code and math in an answer', () => {
  test.each([
    ['the page of the chat', () => `${url}/`],
    ['a page of another origin', () => `${pageOf(other.url)}/`],
  ])('are loaded and shown when they come: %s', async (_where, address) => {
    const { page, complaints } = await chromium.open('about:blank');
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.goto(address());
    await page.getByRole('button', { name: 'Continue as a guest' }).click();
    await say(page, 'Hello, and what can you show me today?');
    await lastAnswer(page, 'done');
    expect(later(asked)).toEqual([]);
    await say(page, CODE);
    await page.locator('.answer span.hljs-keyword', { hasText: 'const' }).waitFor();
    expect(later(asked)).toEqual(['code-colors']);
    await lastAnswer(page, 'done');
    await say(page, MATH);
    await page.locator('.answer math mfrac').waitFor();
    await lastAnswer(page, 'done');
    expect(later(asked)).toEqual(['code-colors', 'math-element']);
    await page.getByText('for $5 and no more.').last().waitFor();
    expect(complaints).toEqual([]);
  });

  test('stay as they came where the instance has other files, and the next answers go on', async () => {
    const { page, complaints } = await chromium.open('about:blank');
    const refused: string[] = [];
    // As an instance of another version answers.
    await page.route(/\/client\/\w+-\w+-[A-Z0-9]{8}\.js$/, async (route) => {
      refused.push(route.request().url());
      await route.continue({ url: `${url}/client/code-colors-AAAAAAAA.js` });
    });
    await page.goto(`${url}/`);
    await page.getByRole('button', { name: 'Continue as a guest' }).click();
    await say(page, `${CODE}\n\n${MATH}`);
    await lastAnswer(page, 'done');
    await say(page, 'And what is the next one of them?');
    await lastAnswer(page, 'done');
    expect(await page.locator('.answer pre code').textContent()).toBe('const half = 1 / 2;');
    await page.locator('.answer p', { hasText: 'It is $\\frac{1}{2}$ of it' }).waitFor();
    expect(await page.locator('.answer :is(math, code span)').count()).toBe(0);
    expect(later(refused)).toEqual(['code-colors', 'math-element']);
    // Chromium itself writes a line for each answer of 404.
    expect(complaints.filter((one) => !/Failed to load resource.*404/.test(one))).toEqual([]);
  });
});
