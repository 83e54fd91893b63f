/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { BotChatElement } from '../../src/client/element/bot-chat-element.ts';
import { startDemoRelay } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../support/fake-load-balancer.ts';
import { freePort } from '../support/free-port.ts';
import { sectionOf, tablesOf } from '../support/markdown.ts';
import { type RelayProcess, stopProcesses } from '../support/process.ts';
import { ROOT, readSources } from '../support/sources.ts';

describe('the file of the element', () => {
  const file = readFileSync(join(ROOT, 'dist/bot-chat.js'));

  test('is at most 45 KiB, and needs no other file', () => {
    expect(gzipSync(file, { level: 9 }).length).toBeLessThanOrEqual(45 * 1024);
    expect(String(file)).not.toMatch(/^import |\bimport\(/m);
  });

  test('has the notices of what it contains', () => {
    for (const name of ['marked', 'eventsource-parser'])
      expect(String(file)).toContain(readFileSync(join(ROOT, `node_modules/${name}/LICENSE`), 'utf8').trim());
  });
});

const DOCUMENT = readFileSync(join(ROOT, 'docs/front-end.md'), 'utf8');
const [, SNIPPET = ''] = /<!-- snippet: element -->\n```html\n([\s\S]*?)```/.exec(DOCUMENT) ?? [];

describe('the document of the element', () => {
  const sources = readSources('src/client/element').map(({ text }) => text);
  const found = (pattern: RegExp) =>
    new Set(
      sources.flatMap((text) => [...text.matchAll(pattern)].flatMap(([, names = '']) => names.split(' '))),
    );
  const section = sectionOf(DOCUMENT, '## The element');

  test('names every part and no other one', () => {
    const parts = found(/(?:part: ['"]|button\([^()\n]+, ')([a-z -]+)['"]/g);
    // In the table of parts, all words in code are names.
    const listed = tablesOf(section)
      .filter(({ header }) => header[0] === 'part')
      .flatMap(({ rows }) =>
        rows.flatMap(([names = '']) => [...names.matchAll(/`([a-z-]+)`/g)].map(([, name]) => name)),
      );
    expect([...new Set(listed)].sort()).toEqual([...parts].sort());
  });

  test('names every variable, attribute and event', () => {
    const light = [...found(/(--bot-chat-[a-z-]+?)(?=[,)])/g)].filter((name) => !name.endsWith('-dark'));
    const { observedAttributes } = BotChatElement;
    const events = found(/['(](bot-(?:ready|error|signed-out))'/g);
    expect([light.length, events.size]).toEqual([9, 3]);
    for (const name of [...light, ...observedAttributes, ...events]) expect(section).toContain(`\`${name}\``);
  });
});

let relay: RelayProcess;
let url: string;
/** A page of another origin, on the same site, with the element of the relay. */
let other: FakeLoadBalancer;
beforeAll(async () => {
  const port = await freePort();
  other = await startFakeLoadBalancer({
    answer(_req, res) {
      const head = '<meta charset="utf-8"><title>Other</title><link rel="icon" href="data:,">';
      res.writeHead(200, { 'Content-Type': 'text/html' });
      res.end(`<!doctype html><html lang="ar">${head}${SNIPPET.replace(':3000', `:${port}`)}</html>`);
      return true;
    },
  });
  const origin = other.url.replace('127.0.0.1', 'localhost');
  const settings = {
    BOTS: 'demo/echo,demo/tools',
    OPERATIONS: 'message,chat,files',
    ALLOWED_ORIGINS: `${origin},${other.url}`,
  };
  relay = startDemoRelay({ ...settings, PORT: String(port), CHAT_PAGE: 'on' });
  url = `http://localhost:${await relay.listening()}`;
});
const chromium = oneChromium();
afterAll(async () => {
  await other?.close();
  await stopProcesses();
});

let complaints: string[];
afterEach(() => expect(complaints ?? []).toEqual([]));

async function open(path: string, profile?: BrowserContext): Promise<Page> {
  const tab = await chromium.open(path, profile ?? (await chromium.browser.newContext()));
  ({ complaints } = tab);
  return tab.page;
}

async function signIn(page: Page): Promise<void> {
  await page.getByLabel('User name').fill('demo');
  await page.getByLabel('Password').fill('demo');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
}

async function say(page: Page, text: string): Promise<void> {
  await page.getByRole('textbox', { name: 'Message' }).fill(text);
  await page.keyboard.press('Enter');
}

const answer = (page: Page, state: string) => page.locator(`.answer[data-state=${state}]`).last();

describeInChromium('the page with the chat', () => {
  test('signs in, answers in Markdown, and shows the conversation again after a reload', async () => {
    const page = await open(`${url}/chat`);
    await signIn(page);
    await say(page, 'It is **bold** <b>x</b>');
    await answer(page, 'done').locator('strong', { hasText: 'bold' }).waitFor();
    expect(await answer(page, 'done').textContent()).toContain('<b>x</b>');
    await page.reload();
    await answer(page, 'done').locator('strong', { hasText: 'bold' }).waitFor();
    expect(await page.locator('.messages > li').count()).toBe(2);
  });

  test('stops an answer, and forgets the conversation', async () => {
    const page = await open(`${url}/chat`);
    await signIn(page);
    await say(page, 'word '.repeat(100));
    await page.locator('.answer[data-state=streaming]', { hasText: 'word word' }).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await answer(page, 'stopped').waitFor();
    page.once('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'New chat' }).click();
    await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
  });

  test('asks whether the bot may use a tool, and sends a file', async () => {
    const page = await open(`${url}/chat`);
    await page.locator('bot-chat').evaluate((element) => element.setAttribute('bot', 'demo/tools'));
    await signIn(page);
    await say(page, 'What time is it?');
    await page.getByRole('button', { name: 'Allow once' }).click();
    await page.locator('.answer').nth(1).and(page.locator('[data-state=done]')).waitFor();
    const file = { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };
    await page.locator('input[type=file]').setInputFiles(file);
    await page.locator('.files li', { hasNotText: '%' }).waitFor();
    await say(page, 'See the file');
    await page.getByRole('link', { name: 'note.txt' }).waitFor();
  });

  test('dispatches events, and goes on in the same channel after it was removed', async () => {
    const page = await open(`${url}/chat`);
    await page.evaluate(() => {
      const seen: unknown[] = [];
      Object.assign(globalThis, { seen });
      for (const name of ['bot-ready', 'bot-error', 'bot-signed-out'])
        document.addEventListener(name, (event) => seen.push(name, (event as CustomEvent).detail?.code));
    });
    const seen = () => page.evaluate(() => (globalThis as typeof globalThis & { seen: unknown[] }).seen);
    await signIn(page);
    await say(page, 'word '.repeat(60));
    await page.locator('.answer[data-state=streaming]', { hasText: 'word' }).waitFor();
    await page.locator('bot-chat').evaluate((element) => {
      const { parentElement } = element;
      element.remove();
      setTimeout(() => parentElement?.append(element), 300);
    });
    await answer(page, 'done').waitFor();
    expect(await page.locator('.messages > li').count()).toBe(2);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'You are signed out.' }).waitFor();
    expect((await seen()).filter((one) => one)).toContain('bot-signed-out');
    expect(await seen()).toContain('bot-ready');
  });

  test('says which attribute is missing, and tells the page', async () => {
    const page = await open(`${url}/chat`);
    const told = page.evaluate(
      () =>
        new Promise((resolve) => {
          document.addEventListener('bot-error', (event) => resolve(String((event as CustomEvent).detail)));
          document.querySelector('bot-chat')?.setAttribute('bot', 'echo');
        }),
    );
    expect(await told).toBe('Error: Give the bot its attribute: bot="namespace/name".');
    await page.getByRole('alert').filter({ hasText: 'bot="namespace/name"' }).waitFor();
  });
});

describeInChromium('a page of another origin on the same site', () => {
  test('shows the chat of the relay whose file it loads, in the language that it names', async () => {
    const page = await open(other.url.replace('127.0.0.1', 'localhost'));
    await page.getByLabel('اسم المستخدم').fill('demo');
    await page.getByLabel('كلمة المرور').fill('demo');
    await page.keyboard.press('Enter');
    await page.getByRole('textbox', { name: 'رسالة' }).fill('مرحبا');
    await page.keyboard.press('Enter');
    await answer(page, 'done').getByText('مرحبا').waitFor();
    expect(await page.locator('.chat').getAttribute('dir')).toBe('rtl');
  });
});

describeInChromium('a page of another site', () => {
  test('says that browsers block the cookie', async () => {
    // For a browser, 127.0.0.1 and localhost are two sites.
    const page = await open(other.url);
    await page.getByLabel('اسم المستخدم').fill('demo');
    await page.getByLabel('كلمة المرور').fill('demo');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('تمنع المتصفحات ملف تعريف الارتباط هنا').waitFor();
  });
});

describeInChromium('a page whose server does not forward to the relay', () => {
  test('says that something else has answered', async () => {
    const page = await open(`${url}/chat`);
    const body = '<!doctype html><title>The page of the server</title>';
    await page.route('**/client/bot-chat.json', (route) => route.fulfill({ contentType: 'text/html', body }));
    const code = page.evaluate(
      () =>
        new Promise((resolve) => {
          document.addEventListener('bot-error', (event) => resolve((event as CustomEvent).detail.code));
          document.querySelector('bot-chat')?.setAttribute('bot', 'demo/echo');
        }),
    );
    expect(await code).toBe('unexpected_response');
    await page.getByText('The server answered 200 with HTML, which is not of the relay.').waitFor();
    await page.unroute('**/client/bot-chat.json');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByLabel('User name').waitFor();
  });
});
