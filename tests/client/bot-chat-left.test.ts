/// <reference lib="dom" />
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { startDemoRelay } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { stopProcesses } from '../support/process.ts';

const SETTINGS = { BOTS: 'demo/echo,demo/tools', OPERATIONS: 'message,chat,files', CHAT_PAGE: 'on' };
const urls: Record<string, string> = {};
beforeAll(async () => {
  for (const mode of ['password', 'guest'])
    urls[mode] = `http://localhost:${await startDemoRelay({ ...SETTINGS, AUTH_MODE: mode }).listening()}`;
});
const chromium = oneChromium();
afterAll(() => stopProcesses());

let complaints: string[];
afterEach(() => expect(complaints).toEqual([]));

/** The page with the chat in a tab, where somebody is signed in. */
async function signedIn(mode: 'password' | 'guest' = 'password'): Promise<Page> {
  const profile = await chromium.browser.newContext();
  const page = await openIn(profile, mode);
  await enter(page, mode);
  await heading(page, 'How can I help?').waitFor();
  return page;
}

async function openIn(profile: BrowserContext, mode = 'password'): Promise<Page> {
  const tab = await chromium.open(`${urls[mode]}/chat`, profile);
  ({ complaints } = tab);
  return tab.page;
}

async function enter(page: Page, mode: string): Promise<void> {
  if (mode === 'guest') return page.getByRole('button', { name: 'Continue as a guest' }).click();
  await page.getByLabel('User name').fill('demo');
  await page.getByLabel('Password').fill('demo');
  await page.getByRole('button', { name: 'Sign in' }).click();
}

const heading = (page: Page, name: string) => page.getByRole('heading', { name });
const input = (page: Page) => page.getByRole('textbox', { name: 'Message' });
const file = { name: 'secret.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };

/** Writes a message that is not sent, with a file. */
async function write(page: Page): Promise<void> {
  await input(page).fill('Draft');
  await page.locator('input[type=file]').setInputFiles(file);
  await page.locator('.files li', { hasNotText: '%' }).waitFor();
}

/** What the fields of the chat hold. */
const written = async (page: Page) => ({
  fields: await page
    .locator('textarea, input:not([type=file])')
    .evaluateAll((all) => all.map((one) => (one as HTMLInputElement).value).join('')),
  files: await page.locator('.files li').count(),
});

describeInChromium('what was written and attached', () => {
  test.each(['password', 'guest'] as const)('is gone after a sign-out: %s', async (mode) => {
    const page = await signedIn(mode);
    await write(page);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await heading(page, 'You are signed out.').waitFor();
    expect(await written(page)).toEqual({ fields: '', files: 0 });
  });

  test('is gone after a sign-out in another tab', async () => {
    const page = await signedIn();
    await write(page);
    const other = await openIn(page.context());
    await other.getByRole('button', { name: 'Sign out' }).click();
    await heading(page, 'You are signed out.').waitFor();
    expect(await written(page)).toEqual({ fields: '', files: 0 });
  });

  test.each(['password', 'guest'] as const)(
    'is kept until the user is back if the session has merely ended: %s',
    async (mode) => {
      const page = await signedIn(mode);
      await write(page);
      await page.context().clearCookies();
      await page.locator('input[type=file]').setInputFiles({ ...file, name: 'late.txt' });
      await heading(page, 'You are signed out.').waitFor();
      await enter(page, mode);
      await heading(page, 'How can I help?').waitFor();
      expect(await input(page).inputValue()).toBe('Draft');
      expect(await page.locator('.files li[data-state=done]').count()).toBe(1);
    },
  );
});

describeInChromium('an element', () => {
  test.each([
    ['is removed and comes again', (chat: Element) => chat.parentElement?.append(chat)],
    ['gets another bot', (chat: Element) => chat.setAttribute('bot', 'demo/tools')],
    ['gets another channel', (chat: Element) => chat.setAttribute('channel', 'another')],
  ])('shows nothing of before while it waits for the relay: it %s', async (_name, change) => {
    const page = await signedIn();
    await input(page).fill('secret');
    await input(page).press('Enter');
    await page.locator('.answer[data-state=done]', { hasText: 'secret' }).waitFor();
    let go = () => {};
    const isAsked = new Promise((resolve) => {
      void page.route('**/client/bot-chat.json', async (route) => {
        resolve(undefined);
        await new Promise<void>((wanted) => {
          go = wanted;
        });
        await route.continue();
      });
    });
    await page.locator('bot-chat').evaluate(change);
    await isAsked;
    const shown = await page.locator('bot-chat').evaluate((chat) => chat.shadowRoot?.textContent);
    go();
    await input(page).waitFor();
    expect(shown).toBe('');
  });

  test('holds nothing after it was removed', async () => {
    const page = await signedIn();
    const left = await page.locator('bot-chat').evaluate((chat) => {
      chat.remove();
      return chat.shadowRoot?.childNodes.length;
    });
    expect(left).toBe(0);
  });

  test('takes an empty channel for none', async () => {
    const page = await signedIn();
    const sent = page.waitForRequest('**/message/sse');
    await page.locator('bot-chat').evaluate((chat) => chat.setAttribute('channel', ''));
    await heading(page, 'How can I help?').waitFor();
    await input(page).fill('Hello');
    await input(page).press('Enter');
    expect((await sent).postDataJSON().customChannelId).toMatch(/./);
  });
});
