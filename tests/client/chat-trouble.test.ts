/// <reference lib="dom" />
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { serveElementPage } from '../harness/browser/element-page.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import type { ChatWindow } from './pages/chat-view.ts';

let front: FakeLoadBalancer;
let page: Page;
let complaints: string[];
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  front = await serveElementPage("import '../../../tests/client/pages/chat-view.ts';");
  ({ page, complaints } = await chromium.open(`${front.url}/`));
  await page.waitForFunction('globalThis.show');
});
beforeEach(() => page.evaluate(() => (globalThis as ChatWindow).show()));
afterEach(() => expect(complaints).toEqual([]));
afterAll(() => front?.close());

const announced = () => page.locator('[aria-live=polite] p').allTextContents();
const alerts = () => page.getByRole('alert').filter({ hasText: /\S/ }).allTextContents();
const MESSAGE = 'The bot service cannot be reached.';

describeInChromium('after too many sign-ins, the form', () => {
  const submit = () => page.locator('.sign-in button');
  async function refused(lang = 'en'): Promise<void> {
    await page.evaluate((lang) => {
      const { show, set, refuse } = globalThis as ChatWindow;
      show({ lang });
      set({ session: null });
      refuse({ code: 'too_many_attempts', retryAfter: 120 });
    }, lang);
    for (const input of await page.locator('.sign-in input').all()) await input.fill('ada');
    await submit().click();
    await page.locator('.sign-in [aria-disabled]').waitFor();
    await page.locator('.sign-in .why').filter({ hasText: /\S/ }).waitFor();
  }

  test('lets another user sign in at once, but not twice', async () => {
    await refused();
    expect(await submit().textContent()).toBe('Try again in 2 min');
    await page.getByLabel('User name').fill('bob');
    expect(await submit().textContent()).toBe('Sign in');
    await page.evaluate(() => {
      const { calls } = globalThis as ChatWindow;
      calls.length = 0;
      const form = document.querySelector('#chat')?.shadowRoot?.querySelector<HTMLFormElement>('.sign-in');
      form?.requestSubmit();
      form?.querySelector('input')?.dispatchEvent(new Event('input'));
      form?.requestSubmit();
    });
    expect(await page.evaluate(() => (globalThis as ChatWindow).calls)).toEqual([['signIn', 'bob', 'ada']]);
  });

  test('waits no longer because the clock was set back, or the computer has slept', async () => {
    await refused();
    /** What the button shows when it was drawn with another clock. */
    const shown = (skewMs: number) =>
      page.evaluate(async (skewMs) => {
        const button = document.querySelector('#chat')?.shadowRoot?.querySelector('.sign-in button');
        const { now } = Date;
        await new Promise<void>((resolve) => {
          Date.now = () => {
            // All that is drawn with this time is there in the next task.
            setTimeout(resolve);
            return now() + skewMs;
          };
        });
        Date.now = now;
        return button?.textContent;
      }, skewMs);
    expect(await shown(-3_600_000)).toBe('Try again in 2 min');
    // Of two minutes, one has gone by, and what the test took.
    expect(await shown(60_000)).toMatch(/^Try again in [1-5]\d sec$/);
  });

  test('says how long in a form that suits each number in Arabic', async () => {
    await refused('ar');
    expect(await submit().textContent()).toBe('حاول مرة أخرى بعد 2 د');
  });
});

describeInChromium('an answer that failed', () => {
  test('can be asked for again when the time is over, also if its row is made again', async () => {
    const first = await page.evaluate(async () => {
      const { set, answer } = globalThis as ChatWindow;
      const failed = answer({ failed: { retryAfter: 60 } });
      set({ messages: [failed] });
      const now = performance.now.bind(performance);
      performance.now = () => now() + 20_000;
      set({ messages: [] });
      set({ messages: [failed] });
      performance.now = now;
      return document.querySelector('#chat')?.shadowRoot?.querySelector('[part~=ask-again]')?.textContent;
    });
    // Of 60 seconds, 20 have gone by, and what the test took.
    expect(first).toMatch(/^Ask again in ([1-3]?\d|40) sec$/);
  });

  test('is not shown and read out a second time by a history that failed with it', async () => {
    await page.evaluate(() => {
      const { set, answer } = globalThis as ChatWindow;
      const failed = answer({ failed: {} });
      if (failed.error) set({ messages: [failed], failedHistory: { error: failed.error, loadAgain() {} } });
    });
    await page.getByRole('button', { name: 'Try again', exact: true }).waitFor();
    expect(await alerts()).toEqual([]);
    expect(await page.locator('.why').filter({ hasText: MESSAGE }).count()).toBe(1);
  });

  test('is said in the words of an operator who leaves the error out', async () => {
    const said = await page.evaluate(() => {
      const { show, set, answer } = globalThis as ChatWindow;
      show({ words: { incomplete: 'Please call us.' } });
      set({ messages: [answer({ text: 'Half', failed: {} })] });
      return document.querySelector('#chat')?.shadowRoot?.querySelector('.answer .why')?.textContent;
    });
    expect(said).toBe('Please call us.');
  });

  test.each([
    ['unexpected_response', 'lang'],
    ['', 'dir'],
    ['own', 'dir'],
  ])('is in English unless the bot itself has told it: %j', async (code, attribute) => {
    await page.evaluate((code) => {
      const { set, answer } = globalThis as ChatWindow;
      set({ messages: [answer({ failed: { code, status: 200 } })] });
    }, code);
    const value = { lang: 'en', dir: 'auto' }[attribute];
    expect(await page.locator('.answer .why span').getAttribute(attribute)).toBe(value);
  });
});

describeInChromium('what is read out', () => {
  test('is the end of a session that the user has not ended', async () => {
    await page.evaluate(() => (globalThis as ChatWindow).set({ session: null }));
    await page.evaluate(() => (globalThis as ChatWindow).set({ isLoading: false }));
    expect(await announced()).toEqual(['You are signed out.']);
  });

  test('is not that nobody was signed in at first', async () => {
    await page.evaluate(() => {
      const { show, set } = globalThis as ChatWindow;
      show({ session: undefined });
      set({ session: null });
    });
    expect(await announced()).toEqual([]);
  });

  test('is an error without its request id, which stands beside it', async () => {
    await page.evaluate(() => {
      const { set, answer } = globalThis as ChatWindow;
      set({ error: answer({ failed: { requestId: '0a1b' } }).error });
    });
    expect(await alerts()).toEqual([MESSAGE]);
    await page.getByText(`${MESSAGE} Request id 0a1b`, { exact: true }).waitFor();
    expect(await page.locator('[aria-live]:not([aria-live=off]) code, [role=alert] code').count()).toBe(0);
  });
});

describeInChromium('a file that is not uploaded', () => {
  const attach = (name: string) =>
    page
      .locator('input[type=file]')
      .setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from('text') });

  test('keeps its name where that looks like the place of the error', async () => {
    await attach('a{error}b.txt');
    await page.evaluate(() => (globalThis as ChatWindow).finishUpload(undefined));
    await page.locator('.files li[data-state=error]').waitFor();
    expect(await announced()).toEqual(['a{error}b.txt is not attached. It is too large.']);
  });

  test('is shown as such when nothing says why, since its user has left', async () => {
    await attach('a.txt');
    await page.evaluate(() => (globalThis as ChatWindow).finishUpload(undefined, false));
    await page.locator('.files li[data-state=error]').waitFor();
    expect(await page.locator('.files li .note').textContent()).toBe('a.txt is not attached. ');
    expect(await announced()).toEqual(['a.txt is not attached. ']);
  });
});
