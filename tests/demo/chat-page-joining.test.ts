/// <reference lib="dom" />
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Config } from '../../src/config/config.ts';
import { lastAnswer, longMessage, say, someWords } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { type JoiningPages, startJoiningPages } from '../support/joining-page.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { stopBrowsers } from '../support/sleeping-browser.ts';

/** Of a run without a client: longer than any pause of this machine. */
const GRACE = { JOIN_GRACE_MS: '600000' };
const WORDS = longMessage(5);
/** For cases that must reach the page before the run ends. */
const MORE_WORDS = longMessage(8);
const answerTo = (words: string) => `You said: ${words}`;

let pages: JoiningPages;
beforeAll(async () => {
  pages = await startJoiningPages();
});
const chromium = oneChromium({ keepsTabs: true });
afterAll(() => pages.close());

async function reload(operations: Config['operations'], shown: readonly string[]): Promise<void> {
  const { page, posts, texts, kept, complaints } = await pages.open(chromium, operations, GRACE);
  await say(page, MORE_WORDS);
  await someWords(page);
  expect(await kept()).toMatch(/./);
  expect(await kept()).not.toContain('word');
  await page.reload();
  await lastAnswer(page, 'done');
  await page.locator('.text', { hasText: answerTo(MORE_WORDS) }).waitFor();
  expect(await texts()).toEqual(shown);
  expect(posts()).toBe(1);
  expect(await kept()).toBeNull();
  expect(complaints).toEqual([]);
}

async function breakWithoutJoining(): Promise<void> {
  const { page, cut, posts, kept, complaints } = await pages.open(chromium, ['message'], { JOIN: 'off' });
  await say(page, MORE_WORDS);
  await someWords(page);
  const asked = page.waitForResponse((response) => response.url().includes('/message/run?'));
  await page.reload();
  expect((await asked).status()).toBe(410);
  await page.getByText('Write a message below.').waitFor();
  await page.waitForFunction(() => !sessionStorage.getItem('bot-relay-messages'));
  expect(await kept()).toBeNull();
  expect(await page.locator('.answer, .trouble').count()).toBe(0);
  expect(await page.locator('#composer-note').textContent()).toBe('');
  expect(posts()).toBe(1);
  await say(page, MORE_WORDS);
  await someWords(page);
  cut();
  await lastAnswer(page, 'failed');
  const why = page.locator('.answer:last-child .why');
  expect(await why.textContent()).toBe('The answer is not complete. The connection is lost.');
  expect(await page.locator('code').textContent()).toMatch(/^[0-9a-f-]{36}$/);
  expect(posts()).toBe(2);
  expect(complaints).toEqual([]);
}

describeInChromium('an answer at the chat page', () => {
  const goesOn = 'goes on after a reload, once, and is paid once: at a page';
  testSideBySide([
    [`${goesOn} which shows no history`, () => reload(['message'], [answerTo(MORE_WORDS)])],
    [
      `${goesOn} which shows its question again`,
      () => reload(['message', 'chat'], [MORE_WORDS, answerTo(MORE_WORDS)]),
    ],
    [
      'is not sent again by a reload or a break where nothing can be joined; only the break is an error',
      breakWithoutJoining,
    ],
  ]);

  // Not beside the others: they have the same browser.
  test('goes on after a sleep of the browser that has cost its connection, and is paid once', async () => {
    const { page, cut, posts, texts, complaints } = await pages.open(chromium, ['message'], GRACE);
    await say(page, WORDS);
    await someWords(page);
    const wake = stopBrowsers();
    cut();
    await sleep(1_000);
    wake();
    await lastAnswer(page, 'done');
    expect(await texts()).toEqual([WORDS, answerTo(WORDS)]);
    expect(posts()).toBe(1);
    expect(complaints).toEqual([]);
  });
});
