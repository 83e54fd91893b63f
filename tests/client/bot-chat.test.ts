/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { BotChatElement } from '../../src/client/element/bot-chat-element.ts';
import { deleteChat, say, signIn, signOut, startDemoRelay, stored } from '../harness/browser/chat-page.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { type RelayProcess, stopProcesses } from '../harness/relay/process.ts';

const DOCUMENT = readFileSync(join(ROOT, 'docs/front-end/embed.md'), 'utf8');
const [, SNIPPET = ''] = /<!-- snippet: element -->\n```html\n([\s\S]*?)```/.exec(DOCUMENT) ?? [];

test('the document names every attribute and event of the element', () => {
  const names = [...BotChatElement.observedAttributes, 'bot-ready', 'bot-error', 'bot-signed-out'];
  expect(names.filter((name) => !DOCUMENT.includes(`\`${name}\``))).toEqual([]);
});

let relay: RelayProcess;
let url: string;
/** The chat page of relays with these ways to sign in. */
let pages: Record<'password' | 'guest', string>;
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
    MAX_UPLOAD_BYTES: '1000',
    ALLOWED_ORIGINS: `${origin},${other.url}`,
  };
  relay = startDemoRelay({ ...settings, PORT: String(port), CHAT_PAGE: 'on' });
  const guests = startDemoRelay({ ...settings, AUTH_MODE: 'guest' });
  url = `http://localhost:${await relay.listening()}`;
  pages = { password: `${url}/chat`, guest: `http://localhost:${await guests.listening()}/` };
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

  test('writes nothing to the console while nobody is signed in', async () => {
    const profile = await chromium.browser.newContext();
    const written: string[] = [];
    profile.on('console', (message) => written.push(message.text()));
    const page = await open(`${url}/chat`, profile);
    await page.getByLabel('User name').waitFor();
    expect(written).toEqual([]);
  });

  test('says that the browser blocks its cookie', async () => {
    const profile = await chromium.browser.newContext();
    const page = await open(`${url}/chat`, profile);
    await page.route('**/auth/login', async (route) => {
      const response = await route.fetch();
      await profile.clearCookies();
      const { 'set-cookie': _, ...headers } = response.headers();
      await route.fulfill({ response, headers });
    });
    await page.getByLabel('User name').fill('demo');
    await page.getByLabel('Password').fill('demo');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('Your browser blocks the cookie').waitFor();
    expect(await page.getByLabel('User name').isVisible()).toBe(true);
  });

  test('stops an answer, and forgets the conversation', async () => {
    const page = await open(`${url}/chat`);
    await signIn(page);
    await say(page, 'word '.repeat(100));
    await page.locator('.answer[data-state=streaming]', { hasText: 'word word' }).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await answer(page, 'stopped').waitFor();
    const cleared = page.waitForResponse('**/channel/clear*');
    await deleteChat(page);
    const response = await cleared;
    expect([response.request().method(), response.status()]).toEqual(['POST', 204]);
    await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
    expect(await page.locator('.messages > li').count()).toBe(0);
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
    await signOut(page);
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
    await page.getByLabel('كلمة المرور').fill('wrong');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('اسم المستخدم أو كلمة المرور غير صحيحة.').waitFor();
    await page.getByLabel('كلمة المرور').fill('demo');
    await page.keyboard.press('Enter');
    await page.getByRole('textbox', { name: 'رسالة' }).fill('مرحبا');
    await page.keyboard.press('Enter');
    await answer(page, 'done').getByText('مرحبا').waitFor();
    expect(await page.locator('.chat').getAttribute('dir')).toBe('rtl');
  });
});

/** Watches a countdown in the form; the returned function tells its texts, and what was announced since. */
async function watchCountdown(page: Page) {
  const watched = await page.locator('bot-chat').evaluateHandle(({ shadowRoot: root }) => {
    const button = root?.querySelector('.sign-in button') as Element;
    const seen = { texts: [`${button.textContent}`], announced: 0 };
    new MutationObserver(() => seen.texts.push(`${button.textContent}`)).observe(button, { childList: true });
    new MutationObserver((records) => {
      for (const { addedNodes } of records) seen.announced += addedNodes.length;
    }).observe(root?.querySelector('[aria-live=polite]') as Element, { childList: true });
    return seen;
  });
  return () => watched.jsonValue();
}

describeInChromium('the form for signing in', () => {
  test('says when it can be used again after too many sign-ins, and not before', async () => {
    const strict = startDemoRelay({ BOTS: 'demo/echo', CHAT_PAGE: 'on', LOGIN_MAX_FAILURES: '1' });
    const profile = await chromium.browser.newContext();
    await profile.clock.install();
    const page = await open(`http://localhost:${await strict.listening()}/chat`, profile);
    let signIns = 0;
    page.on('request', (request) => {
      signIns += Number(request.url().endsWith('/auth/login'));
    });
    await page.getByLabel('Password').fill('wrong');
    const submit = page.locator('.sign-in [type=submit]');
    await submit.click();

    await page.getByRole('alert').getByText('The user name or the password is wrong').waitFor();
    await submit.click();
    await page.getByText('Too many tries').waitFor();
    const changes = await watchCountdown(page);
    expect(await submit.getAttribute('aria-disabled')).toBe('true');
    expect(await said(page)).toEqual(['Try again in 10 min']);
    await page.getByLabel('Password').fill('demo');
    await page.keyboard.press('Enter');
    await page.clock.runFor(600_000);
    await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
    const { texts, announced } = await changes();
    expect(texts.pop()).toBe('Sign in');
    const left = texts.map((text) => {
      const [, time = '', unit] = /^Try again in (\d+) (min|sec)$/.exec(text) ?? [];
      return Number(time) * (unit === 'min' ? 60 : 1);
    });
    expect([left[0], left.at(-1)]).toEqual([600, 1]);
    expect(left).toEqual([...new Set(left)].sort((a, b) => b - a));
    // That it counts is not read out.
    expect([announced, signIns]).toEqual([0, 2]);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    // For the relay, no time has passed.
    await page.getByText('Try again in 10 min').first().waitFor();
    expect(signIns).toBe(3);
    // Chromium writes each refusal to the console.
    complaints.length = 0;
  });
});

describeInChromium('a page of another site', () => {
  test('says that the browser blocks the cookie, and to the developer why', async () => {
    // For a browser, 127.0.0.1 and localhost are two sites.
    const page = await open(other.url);
    await page.getByLabel('اسم المستخدم').fill('demo');
    await page.getByLabel('كلمة المرور').fill('demo');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('متصفحك يمنع ملف تعريف الارتباط لهذه الصفحة').waitFor();
    expect(complaints.splice(0)).toEqual([expect.stringContaining('Browsers block the cookie of a relay')]);
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
    await page.getByText('Something went wrong on our side.').waitFor();
    await page.getByText('Details').click();
    await page.getByText('/client/bot-chat.json with 200 and HTML.').waitFor();
    // It is for the author of the page.
    expect(complaints.splice(0)).toEqual([expect.stringContaining('It is not the relay: add /auth')]);
    await page.unroute('**/client/bot-chat.json');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByLabel('User name').waitFor();
  });
});

/** The page with the chat in a tab, where somebody is signed in. */
async function signedIn(mode: 'password' | 'guest' = 'password'): Promise<Page> {
  const page = await open(pages[mode]);
  await enter(page, mode);
  await heading(page, 'How can I help?').waitFor();
  return page;
}

const enter = (page: Page, mode: 'password' | 'guest') =>
  mode === 'guest' ? page.getByRole('button', { name: 'Continue as a guest' }).click() : signIn(page);
const heading = (page: Page, name: string) => page.getByRole('heading', { name });
const input = (page: Page) => page.getByRole('textbox', { name: 'Message' });
const file = { name: 'secret.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };

/** Writes a message that is not sent, with a file. */
async function write(page: Page): Promise<void> {
  await input(page).fill('Draft');
  await page.locator('input[type=file]').setInputFiles(file);
  await page.locator('.files li', { hasNotText: '%' }).waitFor();
}

/** The user and the password of the demo, which the form for signing in has. */
const FILLED_IN = 'demodemo';
/** What the fields of the chat hold. */
const written = async (page: Page) => ({
  fields: await page
    .locator('textarea, input:not([type=file])')
    .evaluateAll((all) => all.map((one) => (one as HTMLInputElement).value).join('')),
  files: await page.locator('.files li').count(),
});

/** What screen readers are told. */
const said = (page: Page) => page.locator('[aria-live=polite] p').allTextContents();

describeInChromium('what was written and attached', () => {
  test.each(['password', 'guest'] as const)('is gone after a sign-out: %s', async (mode) => {
    const page = await signedIn(mode);
    await write(page);
    await signOut(page);
    await heading(page, 'You are signed out.').waitFor();
    expect(await written(page)).toEqual({ fields: mode === 'guest' ? '' : FILLED_IN, files: 0 });
    expect(await said(page)).toEqual(['You are signed out.']);
  });

  test('is gone after a sign-out in another tab', async () => {
    const page = await signedIn();
    await write(page);
    const other = await open(pages.password, page.context());
    await signOut(other);
    await heading(page, 'You are signed out.').waitFor();
    expect(await written(page)).toEqual({ fields: FILLED_IN, files: 0 });
    expect(await said(page)).toEqual(['You are signed out.']);
  });

  test.each([
    ['is kept until the user is back if the session has merely ended', 'password', 1],
    // The next session of a guest is that of another user.
    ['of a guest is kept if the session has merely ended, but for the files', 'guest', 0],
  ] as const)('%s', async (_, mode, files) => {
    const page = await signedIn(mode);
    await write(page);
    await page.context().clearCookies();
    await page.locator('input[type=file]').setInputFiles({ ...file, name: 'late.txt' });
    await heading(page, 'You are signed out.').waitFor();
    expect(await page.locator('.files li[data-state=done]').count()).toBe(files);
    await enter(page, mode);
    await heading(page, 'How can I help?').waitFor();
    expect(await input(page).inputValue()).toBe('Draft');
    expect(await page.locator('.files li[data-state=done]').count()).toBe(files);
  });
});

describeInChromium('a draft', () => {
  test('comes back after a reload in its own chat, and is gone when it is sent', async () => {
    const page = await signedIn();
    await say(page, 'Hello');
    await answer(page, 'done').waitFor();
    await input(page).fill('Draft');
    await page.reload();
    await answer(page, 'done').waitFor();
    expect(await input(page).inputValue()).toBe('Draft');
    await input(page).press('Enter');
    await page.getByText('Draft', { exact: true }).first().waitFor();
    await page.reload();
    await answer(page, 'done').waitFor();
    expect(await input(page).inputValue()).toBe('');
  });

  test('is kept for this user alone, until the sign-out', async () => {
    const page = await signedIn();
    await input(page).fill('secret draft');
    expect(await stored(page)).toContain('secret draft');
    await page.context().clearCookies();
    await page.reload();
    await heading(page, 'Sign in to talk with the bot.').waitFor();
    expect(await page.locator('textarea').inputValue()).toBe('');
    await signIn(page);
    await input(page).and(page.locator(':not(:placeholder-shown)')).waitFor();
    expect(await input(page).inputValue()).toBe('secret draft');
    await signOut(page);
    await heading(page, 'You are signed out.').waitFor();
    expect(await stored(page)).not.toContain('secret draft');
  });
});

describeInChromium('a file that is too large', () => {
  test('has the reason beside its name, there alone, and is not sent', async () => {
    const page = await signedIn();
    const large = { ...file, name: 'large.txt', buffer: Buffer.alloc(2_000, 'a') };
    await page.locator('input[type=file]').setInputFiles([large, file]);
    await page.locator('.files li[data-state=done]').waitFor();
    const reason = page.locator('.files li[data-state=error] .note');
    expect(await reason.textContent()).toBe('This is too large. Send less at once.');
    expect(await reason.getAttribute('title')).toMatch(/^The file is over 1000 bytes\. · \S+$/);
    expect(await page.locator('[aria-live=polite] p', { hasText: 'This is too large' }).count()).toBe(1);
    expect(await page.locator('.composer > .why').textContent()).toBe('');
    await say(page, 'See the file');
    await page.getByRole('link', { name: 'secret.txt' }).waitFor();
    expect(await page.getByRole('link', { name: 'large.txt' }).count()).toBe(0);
  });
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
    const { promise: isAsked, resolve: ask } = Promise.withResolvers<void>();
    const { promise: goes, resolve: go } = Promise.withResolvers<void>();
    await page.route('**/client/bot-chat.json', async (route) => {
      ask();
      await goes;
      await route.continue();
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
