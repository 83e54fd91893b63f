/// <reference lib="dom" />
import { afterAll, beforeAll, expect } from '@jest/globals';
import { deltaOf, eventOf } from '../support/bot-runs.ts';
import {
  lastAnswer,
  longMessage,
  openChat,
  say,
  signIn,
  someWords,
  startDemoRelay,
} from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { type RelayProcess, stopProcesses } from '../support/process.ts';
import { testSideBySide } from '../support/side-by-side.ts';

/** The relay of all cases that need no settings of their own. It starts together with Chromium. */
let demo: RelayProcess;
beforeAll(() => {
  // Without runs to join, the client resumes a stream at the bot service.
  demo = startDemoRelay({ BOTS: 'demo/*', JOIN: 'off' });
});
const chromium = oneChromium({ keepsTabs: true });
afterAll(() => stopProcesses());

const WHOLE = 'This answer has two messages.\n\nThe second breaks off and goes on where it did.';

describeInChromium('an answer at the chat page', () => {
  testSideBySide([
    [
      'keeps the end of a growing answer in view, unless the user has scrolled back',
      async () => {
        const { page } = await openChat(chromium, demo, { viewport: { width: 320, height: 500 } });
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
      },
    ],
    [
      'draws an answer at most once per frame, and sends nothing while a character is composed',
      async () => {
        const { page } = await openChat(chromium, demo);
        await signIn(page);
        await page.evaluate(() => {
          const text = document.querySelector('#text') as HTMLTextAreaElement;
          text.value = 'かな';
          const enter = { key: 'Enter', bubbles: true, cancelable: true };
          text.dispatchEvent(new KeyboardEvent('keydown', { ...enter, isComposing: true }));
        });
        expect(await page.locator('#text').inputValue()).toBe('かな');
        const body = Array.from({ length: 2_000 }, (_, index) => eventOf(deltaOf(`${index} `))).join('');
        await page.route('**/message/sse', (route) =>
          route.fulfill({ contentType: 'text/event-stream', body }),
        );
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
      },
    ],
    [
      'sends a question again once, to the same bot',
      async () => {
        const { page } = await openChat(chromium, demo);
        const sent: string[] = [];
        page.on('request', (request) => {
          if (request.url().endsWith('/sse')) sent.push(request.url().split('/').at(-3) ?? '');
        });
        await signIn(page);
        await page.getByLabel('Bot').selectOption('demo/steps');
        await say(page, 'Count');
        await lastAnswer(page, 'failed');
        // Each bot has its own conversation.
        await page.getByLabel('Bot').selectOption('demo/echo');
        await page.locator('#messages:empty').waitFor({ state: 'attached' });
        await page.getByLabel('Bot').selectOption('demo/steps');
        await page.locator('.answer .again').evaluate((button: HTMLElement) => {
          button.click();
          button.click();
        });
        await page.locator('.question').nth(1).waitFor();
        await lastAnswer(page, 'failed');
        expect(sent).toEqual(['steps', 'steps']);
        expect(await page.locator('.answer').count()).toBe(2);
      },
    ],
    [
      'is whole though its stream broke at the bot service',
      async () => {
        const { page } = await openChat(chromium, demo);
        await signIn(page);
        await page.getByLabel('Bot').selectOption('demo/resume');
        await say(page, 'Go');
        await lastAnswer(page, 'done', 'failed');
        expect(await page.locator('.answer .text').textContent()).toBe(WHOLE);
      },
    ],
    [
      'is resumed if its connection is lost after an id, and the page says so',
      async () => {
        const { page } = await openChat(chromium, demo);
        await signIn(page);
        await page.evaluate(() => {
          const notes: string[] = [];
          Object.assign(globalThis, { notes });
          new MutationObserver(() => {
            notes.push(document.querySelector('.answer .note')?.textContent ?? '');
          }).observe(document.body, { subtree: true, childList: true, characterData: true });
          const send = globalThis.fetch;
          globalThis.fetch = async (...call) => {
            if (!String(call[0]).endsWith('/message/sse')) return send(...call);
            globalThis.fetch = send;
            const response = await send(...call);
            let seen = '';
            const cut = new TransformStream<Uint8Array, Uint8Array>({
              transform(chunk, controller) {
                controller.enqueue(chunk);
                seen += new TextDecoder().decode(chunk);
                if (/^id: .*\n\n/ms.test(seen)) controller.error(new TypeError('cut'));
              },
            });
            return new Response(response.body?.pipeThrough(cut) ?? null, response);
          };
        });
        await page.getByLabel('Bot').selectOption('demo/resume');
        await say(page, 'Go');
        await lastAnswer(page, 'done');
        const notes = await page.evaluate(() => (globalThis as unknown as { notes: string[] }).notes);
        expect(notes).toContainEqual(expect.stringMatching(/^Connecting again/));
        expect(await page.locator('.answer .text').textContent()).toBe(WHOLE);
      },
    ],
  ]);
});
