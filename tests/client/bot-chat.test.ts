/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { BotChatElement } from '../../src/client/element/bot-chat-element.ts';
import {
  chats,
  deleteChat,
  lastAnswer,
  newChat,
  say,
  signIn,
  signOut,
  startDemoRelay,
  stored,
  texts,
} from '../harness/browser/chat-page.ts';
import { ask, chatStage } from '../harness/browser/chat-stage.ts';
import { describeInChromium } from '../harness/browser/chromium.ts';
import { bundle, REACT_VERSIONS, type ReactPage, startReactPage } from '../harness/browser/react-page.ts';
import { until } from '../harness/clock/until.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { OTHER_USER, type TestRelay, USER } from '../harness/relay/relay.ts';
import { HELD } from '../harness/service/held-echo.ts';

const DOCUMENT = readFileSync(join(ROOT, 'docs/front-end/embed.md'), 'utf8');
const [, SNIPPET = ''] = /<!-- snippet: element -->\n```html\n([\s\S]*?)```/.exec(DOCUMENT) ?? [];

test('the document names every attribute and event of the element', () => {
  const names = [...BotChatElement.observedAttributes, 'bot-ready', 'bot-error', 'bot-signed-out'];
  expect(names.filter((name) => !DOCUMENT.includes(`\`${name}\``))).toEqual([]);
});

type Chat = HTMLElementTagNameMap['bot-chat'];

const stage = chatStage();
let relay: TestRelay;
let guests: TestRelay;
/** A page of another server, in Arabic, with the element of the relay. For a browser, 127.0.0.1 is another site. */
let other: FakeLoadBalancer;
const onSite = (url: string) => url.replace('127.0.0.1', 'localhost');
beforeAll(async () => {
  other = await startFakeLoadBalancer({
    answer(_req, res) {
      const head = '<meta charset="utf-8"><title>Other</title><link rel="icon" href="data:,">';
      res.writeHead(200, { 'Content-Type': 'text/html' });
      res.end(`<!doctype html><html lang="ar">${head}${SNIPPET.replace(':3000', `:${relay.port}`)}</html>`);
      return true;
    },
  });
  const settings = { MAX_UPLOAD_BYTES: '1000', ALLOWED_ORIGINS: `${onSite(other.url)},${other.url}` };
  relay = await stage.relay(settings);
  guests = await stage.relay({ ...settings, AUTH_MODE: 'guest' });
});
afterAll(() => other?.close());

const element = (page: Page) => page.locator('bot-chat');
const answer = (page: Page, state: string) => page.locator(`.answer[data-state=${state}]`).last();
const heading = (page: Page, name: string) => page.getByRole('heading', { name });
const empty = (page: Page) => heading(page, 'How can I help?');
const signedOut = (page: Page) => heading(page, 'You are signed out.');
const input = (page: Page) => page.getByRole('textbox', { name: 'Message' });
const shown = (page: Page) => page.locator('.messages > li').count();
const focused = (page: Page) =>
  element(page).evaluate((chat) => chat.shadowRoot?.activeElement?.getAttribute('part'));
/** The page with the chat, where somebody is signed in. */
async function signedIn(at = relay): Promise<Page> {
  const page = await stage.open(at);
  await empty(page).waitFor();
  return page;
}
const visit = (before?: (page: Page) => unknown) =>
  stage.open(relay, { user: null, ...(before && { before }) });
/** Keeps all calls of an address back; `isAsked` resolves with the first one, and `go` lets them go on. */
async function hold(page: Page, address: string) {
  const { promise: isAsked, resolve: ask } = Promise.withResolvers<void>();
  const { promise: goes, resolve: go } = Promise.withResolvers<void>();
  await page.route(address, async (route) => {
    ask();
    await goes;
    await route.continue();
  });
  return { isAsked, go };
}

describeInChromium('a tab of these tests', () => {
  const SCRIPT = `console.warn('a warning'); console.error('an error');
    Promise.reject(new Error('a rejection'));
    Promise.all(['/auth/session', '/missing'].map((path) => fetch(path))).then(() => { document.body.id = 'done'; });
    throw new Error('thrown');`;

  test('reports the errors of a page, and nothing else', async () => {
    const bad = await startFakeLoadBalancer({
      answer({ url }, res) {
        res.setHeader('Content-Security-Policy', "default-src 'self'; img-src data:");
        const page = `<!doctype html><link rel="icon" href="data:,"><body><script>'inline'</script><script src="script.js"></script>`;
        if (url === '/') res.setHeader('Content-Type', 'text/html').end(page);
        else if (url === '/script.js') res.setHeader('Content-Type', 'text/javascript').end(SCRIPT);
        else res.writeHead(404).end();
        return true;
      },
    });
    const page = await stage.open(`${bad.url}/`, { isNew: true });
    await page.locator('#done').waitFor({ state: 'attached' });
    const complaints = stage.complaints().map((line) => line.split('\n')[0]);
    expect(complaints.sort()).toEqual([
      expect.stringMatching(/^error: .*inline script.*Content Security Policy/s),
      expect.stringMatching(/^error: Failed to load resource: .*404.*\/missing\)$/),
      expect.stringMatching(/^error: an error /),
      'uncaught: Error: a rejection',
      'uncaught: Error: thrown',
      expect.stringMatching(/^warning: a warning /),
    ]);
    await bad.close();
  });
});

describeInChromium('the page with the chat', () => {
  test('signs in, answers in Markdown, and shows the conversation again after a reload', async () => {
    const written: string[] = [];
    const page = await visit((page) => page.on('console', (message) => written.push(message.text())));
    await page.getByLabel('User name').and(page.locator(':focus')).waitFor();
    expect(written).toEqual([]);
    await signIn(page, USER);
    await ask(page, 'It is **bold** <b>x</b>');
    await answer(page, 'done').locator('strong', { hasText: 'bold' }).waitFor();
    expect(await answer(page, 'done').textContent()).toContain('<b>x</b>');
    await page.reload();
    await answer(page, 'done').locator('strong', { hasText: 'bold' }).waitFor();
    expect([await shown(page), await focused(page)]).toEqual([2, 'input']);
  });

  test('leaves the focus where the user has put it meanwhile', async () => {
    const page = await visit((page) =>
      page.route('**/auth/session', async (route) => {
        await page.evaluate(() => {
          const other = document.createElement('input');
          document.body.append(other);
          other.focus();
        });
        await route.continue();
      }),
    );
    await page.getByLabel('User name').waitFor();
    expect(await page.evaluate(() => document.activeElement?.localName)).toBe('input');
  });

  test('stops an answer, and forgets the conversation', async () => {
    const page = await signedIn();
    await say(page, HELD);
    await answer(page, 'streaming').getByText('You said').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await answer(page, 'stopped').waitFor();
    const cleared = page.waitForResponse('**/channel/clear*');
    await deleteChat(page);
    const response = await cleared;
    expect([response.request().method(), response.status()]).toEqual(['POST', 204]);
    await empty(page).waitFor();
    await page.reload();
    await empty(page).waitFor();
    expect(await shown(page)).toBe(0);
  });

  test('asks whether the bot may use a tool, and sends a file that is not too large', async () => {
    const page = await signedIn();
    await element(page).evaluate((element) => element.setAttribute('bot', 'demo/tools'));
    await empty(page).waitFor();
    await say(page, 'What time is it?');
    await page.getByRole('button', { name: 'Allow once' }).click();
    await page.locator('.answer').nth(1).and(page.locator('[data-state=done]')).waitFor();
    const large = { ...FILE, name: 'large.txt', buffer: Buffer.alloc(2_000, 'a') };
    await page.locator('input[type=file]').setInputFiles([large, FILE]);
    await page.locator('.files li[data-state=done]').waitFor();
    // The reason stands beside its name, and there alone.
    const reason = page.locator('.files li[data-state=error] .note');
    expect(await reason.textContent()).toBe('This is too large. Send less at once.');
    expect(await reason.getAttribute('title')).toMatch(/^The file is over 1000 bytes\. · \S+$/);
    expect((await said(page)).filter((one) => one.includes('This is too large'))).toHaveLength(1);
    expect(await page.locator('.composer > .why').textContent()).toBe('');
    await say(page, 'See the file');
    await page.getByRole('link', { name: FILE.name }).waitFor();
    expect(await page.getByRole('link', { name: 'large.txt' }).count()).toBe(0);
  });

  test('dispatches events, and goes on in the same channel after it was removed', async () => {
    const page = await visit();
    const seen = await page.evaluateHandle(() => {
      const seen: unknown[] = [];
      for (const name of ['bot-ready', 'bot-error', 'bot-signed-out'])
        document.addEventListener(name, (event) => seen.push(name, (event as CustomEvent).detail?.code));
      return seen;
    });
    await signIn(page, USER);
    await say(page, HELD);
    await answer(page, 'streaming').getByText('You said').waitFor();
    await element(page).evaluate(async (chat) => {
      const { parentElement } = chat;
      chat.remove();
      await new Promise((resolve) => requestAnimationFrame(resolve));
      parentElement?.append(chat);
    });
    await answer(page, 'streaming').getByText('You said').waitFor();
    stage.goOn();
    await answer(page, 'done').waitFor();
    expect(await texts(page)).toEqual([HELD, `You said: ${HELD}`]);
    await signOut(page);
    await signedOut(page).waitFor();
    expect(await seen.jsonValue()).toEqual(expect.arrayContaining(['bot-ready', 'bot-signed-out']));
  });

  test('says which attribute is missing, and tells the page', async () => {
    const page = await signedIn();
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

  test('says that something else has answered where a server does not forward to the relay', async () => {
    const body = '<!doctype html><title>The page of the server</title>';
    const page = await visit((page) =>
      page.route('**/client/bot-chat.json', (route) => route.fulfill({ contentType: 'text/html', body })),
    );
    await page.getByText('Something went wrong on our side.').waitFor();
    await page.getByText('Details').click();
    await page.getByText('/client/bot-chat.json with 200 and HTML.').waitFor();
    // It is for the author of the page.
    expect(stage.complaints()).toEqual([expect.stringContaining('It is not the relay: add /auth')]);
    await page.unroute('**/client/bot-chat.json');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByLabel('User name').waitFor();
  });

  test('of the demo has its form filled in, and offers what shows off each bot', async () => {
    const demo = startDemoRelay({ BOTS: 'demo/echo,demo/tools' });
    const page = await stage.open(`http://localhost:${await demo.listening()}/`);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await empty(page).waitFor();
    expect(await page.locator('[part~=suggestion]').count()).toBe(4);
    await page.getByLabel('Bot', { exact: true }).selectOption('demo/tools');
    await page.getByRole('button', { name: 'What time is it?' }).click();
    await page.getByRole('button', { name: 'Allow once' }).waitFor();
    await stopProcesses();
  });
});

describeInChromium('a page of another origin', () => {
  test('on the same site shows the chat of the relay whose file it loads, in the language that it names', async () => {
    const page = await stage.open(onSite(other.url), { isNew: true });
    await page.getByLabel('اسم المستخدم').fill(USER.name);
    await page.getByLabel('كلمة المرور').fill('wrong');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('اسم المستخدم أو كلمة المرور غير صحيحة.').waitFor();
    await page.getByLabel('كلمة المرور').fill(USER.password);
    await page.keyboard.press('Enter');
    await page.getByRole('textbox', { name: 'رسالة' }).fill('مرحبا');
    await page.keyboard.press('Enter');
    await answer(page, 'done').getByText('مرحبا').waitFor();
    expect(await page.locator('.chat').getAttribute('dir')).toBe('rtl');
  });

  test('on another site says that the browser blocks the cookie, and to the developer why', async () => {
    const page = await stage.open(other.url, { isNew: true });
    await page.getByLabel('اسم المستخدم').fill(USER.name);
    await page.getByLabel('كلمة المرور').fill(USER.password);
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('متصفحك يمنع ملف تعريف الارتباط لهذه الصفحة').waitFor();
    expect(await page.getByLabel('اسم المستخدم').isVisible()).toBe(true);
    expect(stage.complaints()).toEqual([expect.stringContaining('Browsers block the cookie of a relay')]);
  });
});

describeInChromium('code and math in an answer', () => {
  test.each([
    ['the page of the chat', () => onSite(`${relay.url}/chat`)],
    ['a page of another origin', () => onSite(other.url)],
  ])('are loaded and shown when they come: %s', async (_where, address) => {
    const asked: string[] = [];
    const before = (page: Page) => page.on('request', (request) => asked.push(request.url()));
    /** The names of the files that are loaded with the first code or math, without their hash. */
    const later = () =>
      asked.flatMap((one) => /\/client\/(code-\w+|math-\w+)-[A-Z0-9]{8}\.js$/.exec(one)?.[1] ?? []);
    const page = await stage.open(address(), { isNew: true, before });
    await page.locator('.sign-in input').first().fill(USER.name);
    await page.locator('.sign-in input').last().fill(USER.password);
    await page.keyboard.press('Enter');
    const tell = async (text: string) => {
      await page.locator('textarea').fill(text);
      await page.locator('textarea').press('Enter');
    };
    await tell('Hello');
    await lastAnswer(page, 'done');
    expect(later()).toEqual([]);
    await tell('This code:\n\n```js\nconst half = 1 / 2;\n```');
    await page.locator('.answer span.hljs-keyword', { hasText: 'const' }).waitFor();
    expect(later()).toEqual(['code-colors']);
    await lastAnswer(page, 'done');
    await tell('It is $\\frac{1}{2}$ of it, for $5 and no more.');
    await page.locator('.answer math mfrac').waitFor();
    expect(later()).toEqual(['code-colors', 'math-element']);
    await page.getByText('for $5 and no more.').last().waitFor();
  });
});

describeInChromium('the form for signing in', () => {
  test('says when it can be used again after too many sign-ins, and not before', async () => {
    const strict = await stage.relay({ LOGIN_MAX_FAILURES: '1' });
    const page = await stage.open(strict, {
      ...{ user: null, isNew: true },
      before: (page) => page.clock.install(),
    });
    let signIns = 0;
    page.on('request', (request) => {
      signIns += Number(request.url().endsWith('/auth/login'));
    });
    await page.getByLabel('User name').fill(USER.name);
    await page.getByLabel('Password').fill('wrong');
    const submit = page.locator('.sign-in [type=submit]');
    await submit.click();
    await page.getByRole('alert').getByText('The user name or the password is wrong').waitFor();
    await submit.click();
    await page.getByText('Too many tries').waitFor();
    expect(await submit.getAttribute('aria-disabled')).toBe('true');
    expect(await said(page)).toEqual(['Try again in 10 min']);
    await page.getByLabel('Password').fill(USER.password);
    await page.keyboard.press('Enter');
    await page.clock.runFor(600_000);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    // For the relay, no time has passed.
    await page.getByText('Try again in 10 min').first().waitFor();
    expect(signIns).toBe(3);
    // Chromium writes each refusal to the console.
    stage.complaints();
  });
});

const FILE = { name: 'secret.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };

/** Writes a message that is not sent, with a file. */
async function write(page: Page): Promise<void> {
  await input(page).fill('Draft');
  await page.locator('input[type=file]').setInputFiles(FILE);
  await page.locator('.files li', { hasNotText: '%' }).waitFor();
}

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
  test('is gone after a sign-out, in each tab', async () => {
    const page = await signedIn();
    const second = await stage.open(relay, { beside: page });
    for (const tab of [page, second]) await write(tab);
    await signOut(second);
    for (const tab of [page, second]) {
      await signedOut(tab).waitFor();
      expect(await written(tab)).toEqual({ fields: '', files: 0 });
      expect(await said(tab)).toEqual(['You are signed out.']);
    }
  });

  test.each([
    ['is kept until the user is back if the session has merely ended', 'password', 1],
    // The next session of a guest is that of another user.
    ['of a guest is kept if the session has merely ended, but for the files', 'guest', 0],
  ] as const)('%s', async (_, mode, files) => {
    const asGuest = (page: Page) => page.getByRole('button', { name: 'Continue as a guest' }).click();
    const page = await stage.open(mode === 'guest' ? guests : relay, { user: null });
    const enter = () => (mode === 'guest' ? asGuest(page) : signIn(page, USER));
    await enter();
    await write(page);
    await page.context().clearCookies();
    await page.locator('input[type=file]').setInputFiles({ ...FILE, name: 'late.txt' });
    await signedOut(page).waitFor();
    expect(await page.locator('.files li[data-state=done]').count()).toBe(files);
    await enter();
    await empty(page).waitFor();
    expect(await input(page).inputValue()).toBe('Draft');
    expect(await page.locator('.files li[data-state=done]').count()).toBe(files);
  });

  test('as a draft comes back after a reload in its own chat, and is gone when it is sent', async () => {
    const page = await signedIn();
    await ask(page, 'Hello');
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

  test('as a draft is kept for this user alone, until the sign-out', async () => {
    const page = await signedIn();
    await input(page).fill('secret draft');
    expect(await stored(page)).toContain('secret draft');
    await page.context().clearCookies();
    await page.reload();
    await heading(page, 'Sign in to talk with the bot.').waitFor();
    expect(await page.locator('textarea').inputValue()).toBe('');
    await signIn(page, USER);
    await input(page).and(page.locator(':not(:placeholder-shown)')).waitFor();
    expect(await input(page).inputValue()).toBe('secret draft');
    await signOut(page);
    await signedOut(page).waitFor();
    expect(await stored(page)).not.toContain('secret draft');
  });

  test('as a draft is not shown to another user, also in a conversation that the page names', async () => {
    const page = await signedIn();
    const name = () => element(page).evaluate((chat) => chat.setAttribute('channel', 'one'));
    await name();
    await input(page).fill('secret draft');
    await page.context().clearCookies();
    await page.reload();
    await name();
    await signIn(page, OTHER_USER);
    await empty(page).waitFor();
    expect(await input(page).inputValue()).toBe('');
  });
});

describeInChromium('an element', () => {
  test('shows nothing of before while it waits for the relay, and holds nothing after it was removed', async () => {
    const page = await signedIn();
    const changes = [
      // It is removed and comes again, gets another bot, and another channel.
      (chat: Element) => chat.parentElement?.append(chat),
      (chat: Element) => chat.setAttribute('bot', 'demo/tools'),
      (chat: Element) => chat.setAttribute('channel', 'another'),
    ];
    for (const change of changes) {
      await ask(page, 'secret');
      const { isAsked, go } = await hold(page, '**/client/bot-chat.json');
      await element(page).evaluate(change);
      await isAsked;
      expect(await element(page).evaluate((chat) => chat.shadowRoot?.textContent)).toBe('');
      go();
      await input(page).waitFor();
      await page.unroute('**/client/bot-chat.json');
    }
    const left = await element(page).evaluate((chat) => {
      chat.remove();
      return chat.shadowRoot?.childNodes.length;
    });
    expect(left).toBe(0);
  });

  test('takes an empty channel for none', async () => {
    const page = await signedIn();
    const sent = page.waitForRequest('**/message/sse');
    await element(page).evaluate((chat) => chat.setAttribute('channel', ''));
    await empty(page).waitFor();
    await input(page).fill('Hello');
    await input(page).press('Enter');
    expect((await sent).postDataJSON().customChannelId).toMatch(/./);
  });

  test('has the colour scheme of its attribute, else that of its page', async () => {
    const [light, dark] = ['rgb(255, 255, 255)', 'rgb(23, 25, 29)'];
    const page = await visit();
    for (const [scheme, system, theme, color] of [
      ['light', 'dark', null, light],
      ['dark', 'light', null, dark],
      ['light dark', 'dark', null, dark],
      ['light dark', 'dark', 'auto', dark],
      ['light', 'light', 'dark', dark],
      ['dark', 'dark', 'light', light],
    ] as const) {
      await page.emulateMedia({ colorScheme: system });
      const found = await element(page).evaluate(
        (chat, [scheme, theme]) => {
          document.documentElement.style.colorScheme = scheme;
          chat.toggleAttribute('theme', theme !== null);
          if (theme) chat.setAttribute('theme', theme);
          return getComputedStyle(chat).backgroundColor;
        },
        [scheme, theme] as const,
      );
      expect([scheme, system, theme, found]).toEqual([scheme, system, theme, color]);
    }
  });

  test('changes its looks at once by its attributes, and what was said and written stays', async () => {
    const page = await signedIn();
    await ask(page, 'Hello');
    await input(page).fill('Draft');
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
    await heading(page, 'Parcels').waitFor();
    expect(await row?.evaluate((one) => one.isConnected)).toBe(true);
    expect([await input(page).inputValue(), await input(page).getAttribute('placeholder')]).toEqual([
      'Draft',
      'Ask about a parcel',
    ]);
    const loaded = await page
      .locator('header .avatar img')
      .evaluate(async (logo: HTMLImageElement) => logo.decode().then(() => logo.naturalWidth > 0));
    expect(loaded).toBe(true);
    expect(asked.filter((one) => !one.endsWith('.svg'))).toEqual([]);
    await newChat(page);
    const suggestions = await page.locator('[part~=suggestion]').allTextContents();
    expect(suggestions).toEqual(['Where is it?', 'When does it come?']);
  });

  test('loads its language if the page is in it, and is in English where that cannot be had', async () => {
    const asked: string[] = [];
    const page = await visit((page) =>
      page.route('**/client/arabic-*.js', (route) => {
        asked.push(route.request().url());
        return asked.length === 1 ? route.abort() : route.continue();
      }),
    );
    await page.getByLabel('User name').waitFor();
    expect(asked).toEqual([]);
    await element(page).evaluate((chat) => chat.setAttribute('lang', 'ar'));
    await page.locator('.chat[lang=en][dir=ltr] .sign-in').waitFor();
    await until(() => asked.length === 1);
    await page.reload();
    await element(page).evaluate((chat) => chat.setAttribute('lang', 'ar'));
    await page.locator('.chat[lang=ar][dir=rtl] .sign-in').waitFor();
  });
});

describeInChromium('the methods of the element', () => {
  test('send, begin and open a chat, and move the focus; before the relay has answered, they wait', async () => {
    const page = await signedIn();
    const { go } = await hold(page, '**/client/bot-chat.json');
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
      await chat.newChat();
      // It is not taken for the second press of a double click.
      dispatchEvent(new KeyboardEvent('keydown'));
      await chat.send('Second');
      if (codes.join() !== 'ada') throw new Error(codes.join());
      const rows: string[][] = JSON.parse(localStorage.getItem('bot-relay-chats') ?? '[]');
      return rows.find((row) => row.includes('First'))?.[3];
    });
    await page.waitForFunction("document.title === 'Listening'");
    go();
    const id = `${await sent}`;
    await answer(page, 'done').getByText('You said: Second').waitFor();
    expect(await texts(page)).toEqual(['Second', 'You said: Second']);
    await element(page).evaluate((chat, id) => (chat as Chat).open(id), id);
    await page.locator('.answer', { hasText: 'You said: First' }).waitFor();
    await page.evaluate(() => document.querySelector('bot-chat')?.focus());
    expect(await focused(page)).toBe('input');
  });

  test('begin a chat right after a message: the chat before it is in the list', async () => {
    const page = await signedIn();
    await page.locator('.empty').waitFor();
    await page.evaluate(() => {
      const chat = document.querySelector('bot-chat');
      void chat?.send('First');
      void chat?.newChat();
    });
    await page.getByRole('button', { name: 'First', exact: true }).waitFor();
  });

  test('open a chat before it is known who is signed in', async () => {
    const page = await signedIn();
    await ask(page, 'First');
    await newChat(page);
    const id = await page.evaluate(() => JSON.parse(localStorage.getItem('bot-relay-chats') ?? '')[0][3]);
    const { go } = await hold(page, '**/auth/session');
    await page.reload();
    await element(page).evaluate((chat, id) => (chat as Chat).open(`${id}`), id);
    go();
    await page.locator('.answer', { hasText: 'You said: First' }).waitFor();
  });

  test('open a conversation by the attribute that names one', async () => {
    const page = await signedIn();
    await element(page).evaluate(async (chat) => {
      chat.setAttribute('channel', 'one');
      await (chat as Chat).open('two');
    });
    expect(await element(page).getAttribute('channel')).toBe('two');
    await empty(page).waitFor();
  });
});

describeInChromium('the box of the element', () => {
  type Style = Readonly<Record<string, string>>;
  const sizeOf = (page: Page, style: Style, ofPage: Style = {}) =>
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
    const ends = await page
      .locator('.side, .composer')
      .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().bottom));
    const end = await element(page).evaluate((chat) => chat.getBoundingClientRect().bottom);
    expect(ends).toEqual([end, end]);
    expect(await sizeOf(page, {}, { display: 'flex' })).toEqual({ width: 384, height: 576 });
  });

  test('decides how it looks, and not the window: narrow on a wide page', async () => {
    const page = await signedIn();
    await ask(page, 'Hello');
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
    const page = await visit((page) => page.route('**/client/bot-chat.json', (route) => route.abort()));
    await page.getByRole('button', { name: 'Try again' }).waitFor();
    const [shown, box] = await Promise.all(
      [page.locator('.failed'), element(page)].map((one) => one.boundingBox()),
    );
    expect(shown).toEqual(box);
  });
});

describeInChromium('<BotChat>', () => {
  describe.each(REACT_VERSIONS)('with React %s', (react) => {
    let served: ReactPage;
    let page: Page;
    beforeAll(async () => {
      const script = await bundle('tests/client/pages/bot-chat.jsx', { react });
      served = await startReactPage(stage.chromium, script, { BOTS: 'acme/helper', CHAT_PAGE: 'on' });
    });
    afterAll(() => served.close());
    beforeEach(async () => {
      page = await stage.open(`${served.url}/`);
    });
    const run = <T = unknown>(code: string) => page.evaluate(code) as Promise<T>;

    test('is the element with its attributes, which a later render changes', async () => {
      await run('test.mount()');
      await element(page).getByRole('button', { name: 'Sign in' }).waitFor();
      const attribute = (name: string) => run(`document.querySelector('bot-chat').getAttribute('${name}')`);
      expect(await Promise.all(['bot', 'heading', 'suggestions', 'class', 'style'].map(attribute))).toEqual([
        ...['acme/helper', 'Help', 'One\nTwo', 'chat', 'height: 400px;'],
      ]);
      const changes = "{ heading: 'More', lang: 'ar', baseUrl: location.origin, suggestions: undefined }";
      await run(`test.mount(${changes})`);
      await until(async () => (await attribute('heading')) === 'More');
      expect(await Promise.all(['lang', 'base-url', 'suggestions'].map(attribute))).toEqual([
        ...['ar', served.url, null],
      ]);
    });

    test('calls the functions of the last render, and gives its ref the element', async () => {
      await run('test.mount()');
      await until(async () => (await run<number>('test.ready.length')) === 1);
      expect(await run('test.ready')).toEqual([null]);
      expect(await run("test.ref.current === document.querySelector('bot-chat')")).toBe(true);
      await run('test.mount({ onSignedOut: () => void (test.signOuts += 10) })');
      await signIn(page, USER);
      await signOut(page);
      await until(async () => (await run<number>('test.signOuts')) === 10);
      await run("test.mount({ bot: 'no name' })");
      await until(async () => (await run<number>('test.errors.length')) === 1);
      await run('test.unmount()');
      expect(await run('test.ref.current')).toBeNull();
    });

    test('is an empty element on a server, which the page goes on with', async () => {
      await run('test.hydrate()');
      expect(await run('test.drawn')).toMatch(/^<bot-chat [^>]*class="chat"[^>]*><\/bot-chat>$/);
      await element(page).getByRole('button', { name: 'Sign in' }).waitFor();
    });
  });
});
