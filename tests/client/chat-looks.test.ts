/// <reference lib="dom" />
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { plainTitle } from '../../src/client/element/plain-title.ts';
import {
  account,
  chats,
  lastAnswer,
  newChat,
  say,
  signIn,
  startDemoRelay,
  texts,
} from '../harness/browser/chat-page.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { stopProcesses } from '../harness/relay/process.ts';

let url: string;
const chromium = oneChromium();
beforeAll(async () => {
  const relay = startDemoRelay({ BOTS: 'demo/echo,demo/tools', CHAT_PAGE: 'on' });
  url = `http://localhost:${await relay.listening()}/chat`;
});
let complaints: string[];
afterEach(() => expect(complaints.filter((one) => !one.includes('net::ERR_'))).toEqual([]));
afterAll(() => stopProcesses());

async function open(): Promise<Page> {
  const tab = await chromium.open(url);
  ({ complaints } = tab);
  return tab.page;
}

async function signedIn(): Promise<Page> {
  const page = await open();
  await signIn(page);
  await empty(page).waitFor();
  return page;
}

const empty = (page: Page) => page.getByRole('heading', { name: 'How can I help?' });
const element = (page: Page) => page.locator('bot-chat');
const row = (page: Page, title: string) => page.locator('.chat-list li', { hasText: title });
const focused = (page: Page) =>
  element(page).evaluate((chat) => chat.shadowRoot?.activeElement?.getAttribute('part'));

describeInChromium('the colour scheme of the element', () => {
  const LIGHT = 'rgb(255, 255, 255)';
  const DARK = 'rgb(23, 25, 29)';

  test.each([
    ['light', 'dark', null, LIGHT],
    ['dark', 'light', null, DARK],
    ['light dark', 'dark', null, DARK],
    ['light dark', 'dark', 'auto', DARK],
    ['light', 'light', 'dark', DARK],
    ['dark', 'dark', 'light', LIGHT],
  ] as const)(
    'is that of the attribute, else that of its page: page %s, system %s, theme %s',
    async (scheme, system, theme, color) => {
      const page = await open();
      await page.emulateMedia({ colorScheme: system });
      const found = await element(page).evaluate(
        (chat, [scheme, theme]) => {
          document.documentElement.style.colorScheme = scheme;
          if (theme) chat.setAttribute('theme', theme);
          return getComputedStyle(chat).backgroundColor;
        },
        [scheme, theme] as const,
      );
      expect(found).toBe(color);
    },
  );
});

describeInChromium('an attribute that changes the looks', () => {
  test('takes effect at once, and what was said and written stays', async () => {
    const page = await signedIn();
    await say(page, 'Hello');
    await lastAnswer(page, 'done');
    await page.getByRole('textbox', { name: 'Message' }).fill('Draft');
    const row = await page.locator('.question').elementHandle();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await element(page).evaluate((chat) => {
      chat.setAttribute('heading', 'Parcels');
      chat.setAttribute('placeholder', 'Ask about a parcel');
      chat.setAttribute('suggestions', ' Where is it? \n\nWhen does it come?');
      chat.setAttribute('logo', './client/bot-chat.svg');
      chat.setAttribute('theme', 'dark');
    });
    await page.getByRole('heading', { name: 'Parcels' }).waitFor();
    expect(await row?.evaluate((one) => one.isConnected)).toBe(true);
    const text = page.getByRole('textbox', { name: 'Message' });
    expect([await text.inputValue(), await text.getAttribute('placeholder')]).toEqual([
      'Draft',
      'Ask about a parcel',
    ]);
    const loaded = await page
      .locator('header .avatar img')
      .evaluate(async (logo: HTMLImageElement) => logo.decode().then(() => logo.naturalWidth > 0));
    expect(loaded).toBe(true);
    expect(asked.filter((one) => !one.endsWith('.svg'))).toEqual([]);
    await newChat(page);
    expect(await page.locator('[part~=suggestion]').allTextContents()).toEqual([
      'Where is it?',
      'When does it come?',
    ]);
  });
});

describeInChromium('the language of the element', () => {
  test('is loaded by the pages in it, and English where it cannot be had', async () => {
    const page = await open();
    const asked: string[] = [];
    await page.route('**/client/arabic-*.js', (route) => {
      asked.push(route.request().url());
      return route.continue();
    });
    await page.reload();
    await page.getByLabel('User name').waitFor();
    expect(asked).toEqual([]);
    await element(page).evaluate((chat) => chat.setAttribute('lang', 'ar'));
    await page.locator('.chat[lang=ar][dir=rtl] .sign-in').waitFor();
    const other = await open();
    await other.route('**/client/arabic-*.js', (route) => route.abort());
    await other.reload();
    await element(other).evaluate((chat) => chat.setAttribute('lang', 'ar'));
    await other.locator('.chat[lang=en][dir=ltr] .sign-in').waitFor();
    expect(asked).toHaveLength(1);
  });
});

describeInChromium('the methods of the element', () => {
  test('send, begin and open a chat, and move the focus; before the relay has answered, they wait', async () => {
    const page = await signedIn();
    let answer = () => {};
    const listening = new Promise<void>((resolve) => {
      answer = resolve;
    });
    await page.route('**/client/bot-chat.json', (route) => listening.then(() => route.continue()));
    await page.reload();
    const sent = page.evaluate(async () => {
      const chat = document.querySelector('bot-chat');
      if (!chat) return undefined;
      const codes: string[] = [];
      // The types of the events are known to the compiler.
      chat.addEventListener('bot-error', (event) => codes.push(event.detail.message));
      chat.addEventListener('bot-ready', ({ detail }) => codes.push(`${detail.session?.user.name}`));
      const first = chat.send('First');
      document.title = 'Listening';
      await first;
      const rows: string[][] = JSON.parse(localStorage.getItem('bot-relay-chats') ?? '[]');
      await chat.newChat();
      await chat.send('Second');
      if (codes.join() !== 'demo') throw new Error(codes.join());
      return rows[0]?.[3];
    });
    await page.waitForFunction("document.title === 'Listening'");
    answer();
    const id = await sent;
    await page.locator('.answer[data-state=done]', { hasText: 'You said: Second' }).waitFor();
    expect(await texts(page)).toEqual(['Second', 'You said: Second']);
    await element(page).evaluate((chat, id) => (chat as HTMLElementTagNameMap['bot-chat']).open(`${id}`), id);
    await page.locator('.answer', { hasText: 'You said: First' }).waitFor();
    await page.evaluate(() => document.querySelector('bot-chat')?.focus());
    expect(await focused(page)).toBe('input');
  });

  test('open a chat before it is known who is signed in', async () => {
    const page = await signedIn();
    await say(page, 'First');
    await lastAnswer(page, 'done');
    await page.getByRole('button', { name: 'New chat' }).click();
    await empty(page).waitFor();
    const id = await page.evaluate(() => JSON.parse(localStorage.getItem('bot-relay-chats') ?? '')[0][3]);
    let answer = () => {};
    const opened = new Promise<void>((resolve) => {
      answer = resolve;
    });
    await page.route('**/auth/session', (route) => opened.then(() => route.continue()));
    await page.reload();
    await element(page).evaluate((chat, id) => (chat as HTMLElementTagNameMap['bot-chat']).open(`${id}`), id);
    answer();
    await page.locator('.answer', { hasText: 'You said: First' }).waitFor();
  });

  test('opens a conversation by the attribute that names one', async () => {
    const page = await signedIn();
    await element(page).evaluate(async (chat) => {
      chat.setAttribute('channel', 'one');
      await (chat as HTMLElementTagNameMap['bot-chat']).open('two');
    });
    expect(await element(page).getAttribute('channel')).toBe('two');
    await empty(page).waitFor();
  });
});

describeInChromium('the page with the chat', () => {
  test('has the focus where the user signs in, and then where they write', async () => {
    const page = await open();
    await page.getByLabel('User name').waitFor();
    expect(await page.getByLabel('User name').evaluate((input) => input.matches(':focus'))).toBe(true);
    await signIn(page);
    await page.reload();
    await empty(page).waitFor();
    expect(await focused(page)).toBe('input');
  });

  test('leaves the focus where the user has put it meanwhile', async () => {
    const page = await open();
    await page.getByLabel('User name').waitFor();
    await page.route('**/auth/session', async (route) => {
      await page.evaluate(() => {
        const other = document.createElement('input');
        document.body.append(other);
        other.focus();
      });
      await route.continue();
    });
    await page.reload();
    await page.getByLabel('User name').waitFor();
    expect(await page.evaluate(() => document.activeElement?.localName)).toBe('input');
  });

  test('offers what shows off each bot of the demo', async () => {
    const page = await signedIn();
    expect(await page.locator('[part~=suggestion]').count()).toBe(4);
    await page.getByLabel('Bot', { exact: true }).selectOption('demo/tools');
    await page.getByRole('button', { name: 'What time is it?' }).click();
    await page.getByRole('button', { name: 'Allow once' }).waitFor();
  });
});

describeInChromium('the box of the element', () => {
  const sizeOf = (
    page: Page,
    style: Readonly<Record<string, string>>,
    ofPage: Readonly<Record<string, string>> = {},
  ) =>
    element(page).evaluate(
      (chat: HTMLElement, [style, ofPage]) => {
        Object.assign(chat.parentElement?.style ?? {}, ofPage);
        Object.assign(chat.style, style);
        const { width, height } = chat.getBoundingClientRect();
        return { width, height };
      },
      [style, ofPage] as const,
    );

  test('is usable on a page that gives it no size', async () => {
    const page = await signedIn();
    expect(await sizeOf(page, {}, { blockSize: 'auto' })).toEqual({ width: 1280, height: 576 });
    const filled = await page
      .locator('.side, .composer')
      .evaluateAll((all) =>
        all.map(
          (one) =>
            one.getBoundingClientRect().bottom -
            (one.getRootNode() as ShadowRoot).host.getBoundingClientRect().bottom,
        ),
      );
    expect(filled).toEqual([0, 0]);
    const inRow = await sizeOf(page, {}, { display: 'flex' });
    expect(inRow).toEqual({ width: 384, height: 576 });
  });

  test('decides how it looks, and not the window: narrow on a wide page', async () => {
    const page = await signedIn();
    await say(page, 'Hello');
    await lastAnswer(page, 'done');
    expect(await chats(page).isVisible()).toBe(true);
    await sizeOf(page, { inlineSize: '340px' });
    expect(await chats(page).isVisible()).toBe(false);
    const header = await page.locator('header').evaluate((one) => {
      const { height } = one.getBoundingClientRect();
      return { height, isCut: one.scrollWidth > one.clientWidth };
    });
    expect(header).toEqual({ height: expect.closeTo(52, -1), isCut: false });
    await page.getByRole('button', { name: 'Chats' }).click();
    const [sheet, box] = await Promise.all(
      [page.locator('.side'), element(page)].map((one) => one.boundingBox()),
    );
    expect([sheet?.x, sheet?.height]).toEqual([box?.x, box?.height]);
    expect(sheet?.width).toBeLessThan(Number(box?.width));
  });

  test('is filled when the relay cannot be reached', async () => {
    const page = await open();
    await page.route('**/client/bot-chat.json', (route) => route.abort());
    await page.reload();
    await page.getByRole('button', { name: 'Try again' }).waitFor();
    const [shown, box] = await Promise.all(
      [page.locator('.failed'), element(page)].map((one) => one.boundingBox()),
    );
    expect(shown).toEqual(box);
  });
});

describeInChromium('the title of a chat', () => {
  test('is what was said first, without Markdown', async () => {
    const page = await signedIn();
    await say(page, '## Where is **my** [parcel](https://example.com)?');
    await row(page, 'Where is my parcel?').waitFor();
    await lastAnswer(page, 'done');
    expect(await chats(page).allTextContents()).toEqual(['Where is my parcel?']);
  });

  test('is made of the beginning of a message alone', () => {
    expect(plainTitle(`Hello${'\n'.repeat(2_000)}there`)).toBe('Hello');
  });

  test('is that of the bot service, and above it that of the user, also after a reload', async () => {
    const page = await signedIn();
    let asked = 0;
    await page.route('**/channel/metadata?*', (route) => {
      asked += 1;
      return route.fulfill({ json: { isSuccess: true, data: { title: '## A parcel' } } });
    });
    await say(page, 'Where is it?');
    await row(page, 'A parcel').waitFor();
    await row(page, 'A parcel').hover();
    await page.getByRole('button', { name: 'Rename A parcel' }).click();
    await page.getByRole('textbox', { name: 'Title of the chat' }).fill('Mine');
    await page.keyboard.press('Enter');
    await row(page, 'Mine').waitFor();
    await say(page, 'And now?');
    await lastAnswer(page, 'done');
    expect(asked).toBe(1);
    const loaded = page.waitForResponse('**/channel/metadata?*');
    await page.reload();
    await loaded;
    await account(page).waitFor();
    await page.locator('.answer').nth(1).waitFor();
    expect(await chats(page).allTextContents()).toEqual(['Mine']);
  });
});
