/// <reference lib="dom" />
import { afterEach, expect, test } from '@jest/globals';
import { lastAnswer, longMessage, openChat, say, signIn, someWords } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { stopProcesses } from '../support/process.ts';

const chromium = oneChromium();
afterEach(() => stopProcesses());

describeInChromium('an answer at the chat page', () => {
  test('stays at the end of a growing answer, but not for who has scrolled back', async () => {
    const { page } = await openChat(chromium, {}, { viewport: { width: 320, height: 500 } });
    await signIn(page);
    await say(page, longMessage(30));
    await someWords(page);
    const place = () =>
      page.evaluate(() => {
        const { scrollTop, scrollHeight, clientHeight } = document.documentElement;
        return { top: scrollTop, left: scrollHeight - scrollTop - clientHeight, height: scrollHeight };
      });
    const grown = (height: number) =>
      page.waitForFunction((before) => document.documentElement.scrollHeight > before + 40, height);
    const first = await place();
    await grown(first.height);
    expect((await place()).left).toBeLessThan(5);
    await page.evaluate(() => window.scrollTo(0, 100));
    await grown((await place()).height);
    expect((await place()).top).toBe(100);
  });

  test('draws an answer once for each frame at most, and sends nothing while a character is composed', async () => {
    const { page } = await openChat(chromium);
    await signIn(page);
    await page.evaluate(() => {
      const text = document.querySelector('#text') as HTMLTextAreaElement;
      text.value = 'かな';
      const enter = { key: 'Enter', bubbles: true, cancelable: true };
      text.dispatchEvent(new KeyboardEvent('keydown', { ...enter, isComposing: true }));
    });
    expect(await page.locator('#text').inputValue()).toBe('かな');
    const event = (text: string) => `data: {"fact":{"messageDelta":{"message":{"text":"${text}"}}}}\n\n`;
    const body = Array.from({ length: 2_000 }, (_, index) => event(`${index} `)).join('');
    await page.route('**/message/sse', (route) => route.fulfill({ contentType: 'text/event-stream', body }));
    const drawn = page.evaluate(
      () =>
        new Promise<number>((resolve) => {
          let count = 0;
          new MutationObserver(() => {
            const answer = document.querySelector<HTMLElement>('.answer');
            count += 1;
            if (answer?.dataset.state === 'done') resolve(count);
          }).observe(document.querySelector('#messages') as Element, {
            subtree: true,
            childList: true,
            attributes: true,
          });
        }),
    );
    await page.locator('#text').press('Enter');
    expect(await drawn).toBeLessThan(200);
    expect(await page.locator('.answer .text').textContent()).toMatch(/^0 1 2 .* 1999 $/);
  });

  test('sends a question again to the bot that it was for, once', async () => {
    const { page } = await openChat(chromium, { BOTS: 'demo/*' });
    const sent: string[] = [];
    page.on('request', (request) => {
      if (request.url().endsWith('/sse')) sent.push(request.url().split('/').at(-3) ?? '');
    });
    await signIn(page);
    await page.getByLabel('Bot').selectOption('demo/steps');
    await say(page, 'Count');
    await lastAnswer(page, 'failed');
    await page.getByLabel('Bot').selectOption('demo/echo');
    await page.locator('.answer .again').evaluate((button: HTMLElement) => {
      button.click();
      button.click();
    });
    await page.locator('.question').nth(1).waitFor();
    await lastAnswer(page, 'failed');
    expect(sent).toEqual(['steps', 'steps']);
    expect(await page.locator('.answer').count()).toBe(2);
  });

  test('goes on with an answer that can be resumed, and says so', async () => {
    const { page } = await openChat(chromium, { BOTS: 'demo/*' });
    await signIn(page);
    await page.getByLabel('Bot').selectOption('demo/resume');
    await say(page, 'Go');
    await page.locator('.answer .note', { hasText: 'Connecting again' }).waitFor();
    await lastAnswer(page, 'done');
    const whole = 'This answer breaks off and goes on where it did.';
    expect(await page.locator('.answer .text').textContent()).toBe(whole);
  });
});
