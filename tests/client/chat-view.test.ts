/// <reference lib="dom" />
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { AxeResults, RunOptions } from 'axe-core';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { serveElementPage } from '../harness/browser/element-page.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { STATES } from './pages/chat-states.ts';
import type { ChatWindow } from './pages/chat-view.ts';

/** The folder for pictures of every state. Without it, no pictures are taken. */
const FOLDER = process.env.SCREENSHOTS;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

let front: FakeLoadBalancer;
let page: Page;
let complaints: string[];
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  front = await serveElementPage("import '../../../tests/client/pages/chat-view.ts';");
  const profile = await chromium.browser.newContext({ permissions: ['clipboard-read', 'clipboard-write'] });
  ({ page, complaints } = await chromium.open(`${front.url}/`, profile));
  await page.waitForFunction('globalThis.show');
});
beforeEach(() => enter('empty'));
afterEach(() => expect(complaints).toEqual([]));
afterAll(() => front?.close());

const enter = (state: string) => page.evaluate((name) => (globalThis as ChatWindow).enter(name), state);
const calls = () => page.evaluate(() => (globalThis as ChatWindow).calls);
const input = () => page.getByRole('textbox', { name: 'Message' });
const button = (name: string | RegExp) => page.getByRole('button', { name, exact: typeof name === 'string' });
/** The element with the focus, in the shadow of the chat. */
const focused = () =>
  page.evaluate(() => {
    const element = document.querySelector('#chat')?.shadowRoot?.activeElement;
    return element?.getAttribute('aria-label') ?? element?.textContent;
  });
/** What screen readers are told now. */
const announced = () => page.locator('[aria-live=polite] p').allTextContents();
/** Moves the clock of the page on, so that the next press is none of a double click. */
const later = () =>
  page.evaluate(() => {
    const now = performance.now.bind(performance);
    performance.now = () => now() + 1_000;
  });
/** Resolves when all has been laid out and scrolled, and scripts have been told. */
const twoFrames = () =>
  page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));

describeInChromium('the composer', () => {
  test('sends with Enter, and writes a new line with Shift and Enter', async () => {
    await input().fill('Hello');
    await input().press('Shift+Enter');
    await input().pressSequentially('there');
    await input().press('Enter');
    expect(await calls()).toEqual([['send', 'Hello\nthere']]);
    expect(await input().inputValue()).toBe('');
    expect(await focused()).toBe('Message');
  });

  test('sends nothing while a character is composed, and no blank message', async () => {
    await input().fill('かな');
    await input().evaluate((element) => {
      const enter = { key: 'Enter', bubbles: true, cancelable: true };
      element.dispatchEvent(new KeyboardEvent('keydown', { ...enter, isComposing: true }));
    });
    await input().fill(' \n');
    await button('Send').click();
    expect(await calls()).toEqual([]);
  });

  test('takes two presses within 300 ms for one', async () => {
    await input().fill('One');
    await input().evaluate((element: HTMLTextAreaElement) => {
      const { form } = element;
      const { now } = performance;
      const at = performance.now();
      performance.now = () => at;
      form?.requestSubmit();
      element.value = 'Two';
      form?.requestSubmit();
      performance.now = now;
    });
    expect(await calls()).toEqual([['send', 'One']]);
    await later();
    await button('Send').click();
    expect(await calls()).toEqual([
      ['send', 'One'],
      ['send', 'Two'],
    ]);
  });

  test('has Stop beside Send while an answer comes, and gives the focus back to the text', async () => {
    expect(await button('Stop').count()).toBe(0);
    await enter('streaming');
    await later();
    await button('Stop').focus();
    await page.keyboard.press('Enter');
    expect(await calls()).toEqual([['stop']]);
    expect(await button('Send').count()).toBe(1);
    await page.evaluate(() => (globalThis as ChatWindow).set({ status: 'ready' }));
    expect(await button('Stop').count()).toBe(0);
    expect(await focused()).toBe('Message');
  });

  test('sends a suggestion', async () => {
    await button('Where is my parcel?').click();
    expect(await calls()).toEqual([['send', 'Where is my parcel?']]);
    expect(await focused()).toBe('Message');
  });

  test.each([
    ['empty', 'Where is my parcel?'],
    ['done', 'Ask again'],
    ['stopped', 'Ask again'],
    ['consent', 'Allow once'],
    ['done', 'Send'],
  ])('takes two clicks for one, which would be two paid runs: %s, %s', async (state, name) => {
    await enter(state);
    const made = await button(name).evaluate((element: HTMLElement) => {
      const { calls } = globalThis as ChatWindow;
      const text = element.closest('.chat')?.querySelector('textarea');
      const { now } = performance;
      const start = performance.now() + 1_000;
      const counts = [0, 120, 320, 620].map((ms) => {
        performance.now = () => start + ms;
        Object.assign(text as object, { value: 'One' });
        element.click();
        return calls.length;
      });
      performance.now = now;
      return counts;
    });
    expect(made).toEqual([1, 1, 1, 2]);
  });

  test('stops at once, also directly after a message was sent', async () => {
    await enter('streaming');
    await input().fill('Next');
    await input().press('Enter');
    await button('Stop').click();
    expect(await calls()).toEqual([['send', 'Next'], ['stop']]);
  });

  test('shows an error that belongs to no message', async () => {
    await page.evaluate(() => {
      const { set, answer } = globalThis as ChatWindow;
      set({ error: answer({ failed: {} }).error });
    });
    expect(await page.getByRole('alert').filter({ hasText: /\w/ }).textContent()).toBe(
      'The bot service cannot be reached.',
    );
  });
});

describeInChromium('an error', () => {
  const FAILED = { code: 'unreachable', requestId: '0a1b-2c3d' };
  const MESSAGE = 'The bot service cannot be reached.';
  const whys = () => page.locator('.why').filter({ hasText: /\S/ }).allTextContents();
  /** Has a call fail in a chat in this language, and returns what the chat says then. */
  const failing = async (lang: string, where: string, failed: object) => {
    await page.evaluate((lang) => (globalThis as ChatWindow).show({ lang }), lang);
    await page.evaluate((failed) => (globalThis as ChatWindow).refuse(failed), failed);
    if (where === 'note')
      await page.evaluate((failed) => {
        const { set, answer } = globalThis as ChatWindow;
        set({ error: answer({ failed }).error });
      }, failed);
    if (where === 'row')
      await page.evaluate((failed) => {
        const { set, answer } = globalThis as ChatWindow;
        set({ messages: [answer({ failed })] });
      }, failed);
    if (where === 'header') await page.locator('[part~=sign-out]').click();
    if (where === 'form') {
      await page.evaluate(() => (globalThis as ChatWindow).set({ session: null }));
      await page.locator('[type=submit][part~=sign-in]').evaluate((element: HTMLButtonElement) => {
        for (const input of element.form?.querySelectorAll('input') ?? []) input.value = 'x';
        element.click();
      });
    }
    await page.locator('.why').filter({ hasText: /\S/ }).waitFor();
    return whys();
  };

  test.each(['note', 'header', 'form'])('has its request id beside it: %s', async (where) => {
    expect(await failing('en', where, FAILED)).toEqual([`${MESSAGE} Request id 0a1b-2c3d`]);
    expect(await failing('ar', where, FAILED)).toEqual(['تعذّر الوصول إلى الروبوت الآن. رقم الطلب 0a1b-2c3d']);
  });

  test.each(['note', 'header', 'form', 'row'])(
    'without words has its own message, which is said to be English: %s',
    async (where) => {
      expect(await failing('ar', where, { code: 'x' })).toEqual([MESSAGE]);
      expect(await page.locator('.why span[lang=en][dir=ltr]').textContent()).toBe(MESSAGE);
    },
  );

  test('of an answer has the words of its code, and so has what is read out', async () => {
    expect(await failing('ar', 'row', FAILED)).toEqual(['تعذّر الوصول إلى الروبوت الآن.']);
    await page.evaluate((failed) => {
      const { set, answer } = globalThis as ChatWindow;
      set({ messages: [answer({ id: 'one', text: 'x', state: 'streaming' })] });
      set({ messages: [answer({ id: 'one', text: 'x', failed })] });
    }, FAILED);
    expect(await announced()).toEqual(['الإجابة غير مكتملة. تعذّر الوصول إلى الروبوت الآن.']);
  });

  test('that the bot itself tells is in its own words, whatever their language', async () => {
    expect(await failing('ar', 'row', { code: 'timeout', status: 200 })).toEqual([MESSAGE]);
    expect(await page.locator('.why span').getAttribute('dir')).toBe('auto');
  });
});

describeInChromium('the files of a message', () => {
  const PART = { type: 'file', mediaType: 'text/plain', filename: 'a.txt', url: '/a', blobId: 'b' } as const;
  const finish = (part?: typeof PART) =>
    page.evaluate((part) => (globalThis as ChatWindow).finishUpload(part), part);
  const file = { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };

  test('are uploaded at once, and sent with the message', async () => {
    await page.locator('input[type=file]').setInputFiles(file);
    await page.getByText('Uploading 50 %').waitFor();
    await input().fill('See');
    await button('Send').click();
    await page.getByText('A file is still being uploaded.').waitFor();
    await finish(PART);
    await page.getByText('Uploading').waitFor({ state: 'detached' });
    await later();
    await button('Send').click();
    expect(await calls()).toEqual([
      ['upload', 'a.txt', 4],
      ['send', { text: 'See', files: [PART] }],
    ]);
    expect(await page.locator('.files li').count()).toBe(0);
  });

  test('can be removed while they are uploaded', async () => {
    await page.locator('input[type=file]').setInputFiles(file);
    await button('Remove a.txt').click();
    expect(await calls()).toEqual([
      ['upload', 'a.txt', 4],
      ['aborted', 'a.txt'],
    ]);
    expect(await focused()).toBe('Message');
  });

  test('say why they were not uploaded, and are not sent', async () => {
    await page.locator('input[type=file]').setInputFiles(file);
    await finish(undefined);
    const row = page.locator('.files li[data-state=error]');
    await row.getByText('It is too large.', { exact: true }).waitFor();
    expect(await announced()).toEqual(['a.txt is not attached. It is too large.']);
    await input().fill('Without');
    await button('Send').click();
    expect((await calls()).at(-1)).toEqual(['send', 'Without']);
  });

  test.each(['drop', 'paste'])('come by %s', async (type) => {
    await input().evaluate((element, type) => {
      const data = new DataTransfer();
      data.items.add(new File(['12'], 'b.png'));
      const options = { bubbles: true, cancelable: true, composed: true };
      element.dispatchEvent(
        type === 'drop'
          ? new DragEvent(type, { ...options, dataTransfer: data })
          : new ClipboardEvent(type, { ...options, clipboardData: data }),
      );
    }, type);
    expect(await calls()).toEqual([['upload', 'b.png', 2]]);
  });
});

describeInChromium('an answer', () => {
  test('is read out once, when it has ended; until then the log is busy', async () => {
    const grow = (text: string, state: 'streaming' | 'done') =>
      page.evaluate(
        ({ text, state }) => {
          const { set, answer } = globalThis as ChatWindow;
          set({ messages: [answer({ id: 'one', text, state })] });
        },
        { text, state },
      );
    const busy = () => page.getByRole('log').getAttribute('aria-busy');
    await grow('One', 'streaming');
    await grow('One two', 'streaming');
    expect({ busy: await busy(), announced: await announced() }).toEqual({ busy: 'true', announced: [] });
    await grow('One two.', 'done');
    await grow('One two.', 'done');
    expect({ busy: await busy(), announced: await announced() }).toEqual({
      busy: 'false',
      announced: ['Helper said: One two.'],
    });
  });

  test('says for how long it is waited for', async () => {
    await enter('submitted');
    // Each number is there for a second, and a busy browser is asked less often than that.
    await page.getByText(/^Waiting for the answer · [1-9]\d* s$/).waitFor();
  });

  test('can be copied, judged, and asked for again', async () => {
    await enter('done');
    await button('Copy answer').click();
    await button('Copied').waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(/^## Parcels/);
    await button('Copy').click();
    await page.waitForFunction(async () => /^track --parcel/.test(await navigator.clipboard.readText()));
    expect(await button('Good answer').getAttribute('aria-pressed')).toBe('true');
    await button('Bad answer').click();
    await button('Ask again').click();
    const [judged, asked] = await calls();
    expect(judged).toEqual(['feedback', expect.any(String), 'BAD']);
    expect(asked).toEqual(['retry', judged?.[1]]);
    expect(await focused()).toBe('Message');
  });

  test('says that it was not copied where there is no clipboard', async () => {
    await enter('done');
    const names = ['Copy answer', 'Copy'];
    await page.evaluate(() =>
      Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true }),
    );
    for (const name of names) {
      await button(name).click();
      await button('Not copied: select the text').waitFor();
      await button(name).waitFor();
    }
    await page.evaluate(() => delete (navigator as { clipboard?: unknown }).clipboard);
    expect(await announced()).toEqual(names.map(() => 'Not copied: select the text'));
  });

  test('that failed says why, with its request id, and is asked for again once', async () => {
    await enter('failed');
    await page.getByText('The answer is not complete. The bot service cannot be reached.').waitFor();
    await button('Copy request id').first().click();
    await page.waitForFunction(async () => (await navigator.clipboard.readText()) === '0a1b2c3d-request');
    expect(await button(/^Ask again in (90|[5-8]\d) sec$/).getAttribute('aria-disabled')).toBe('true');
    await button(/^Ask again in/).click({ force: true });
    await button('Ask again').evaluate((element: HTMLElement) => {
      element.click();
      element.click();
    });
    expect((await calls()).filter(([name]) => name === 'retry')).toHaveLength(1);
  });

  test.each([
    ['Allow once', true],
    ['Always allow', 'always'],
    ['Do not allow', false],
  ])('asks for a tool: %s', async (name, allow) => {
    await enter('consent');
    expect(await announced()).toEqual(['The bot asks to use clock.']);
    await button(name).click();
    expect(await calls()).toEqual([['consent', '2', allow]]);
  });

  test('keeps its end in view, unless the reader has scrolled back', async () => {
    const log = page.getByRole('log');
    const long = async (lines: number) => {
      await page.evaluate((lines) => {
        const { set, answer } = globalThis as ChatWindow;
        set({ messages: [answer({ id: 'one', state: 'streaming', text: 'line\n\n'.repeat(lines) })] });
      }, lines);
      await log
        .locator('p')
        .nth(lines - 1)
        .waitFor({ state: 'attached' });
      await twoFrames();
    };
    const left = () => log.evaluate((one) => one.scrollHeight - one.scrollTop - one.clientHeight);
    await long(100);
    await long(120);
    expect(await left()).toBeLessThan(5);
    await log.evaluate((one) => one.scrollTo(0, 100));
    await twoFrames();
    await long(160);
    expect(await log.evaluate((one) => one.scrollTop)).toBe(100);
  });
});

const CHATS = [
  { id: 'c', title: 'Parcels', at: Date.now() },
  { id: 'd', title: 'Bills', at: 0 },
];
const showChats = (chats: typeof CHATS) =>
  page.evaluate((chats) => {
    const { show, set, question } = globalThis as ChatWindow;
    show({ chats, bots: ['acme/helper', 'acme/other'] });
    set({ messages: [question('Parcels')] });
  }, chats);
const list = () => page.locator('details');

describeInChromium('the list of chats', () => {
  test('is opened, read and left with the keyboard, and opens a chat', async () => {
    await showChats(CHATS);
    await list().locator('summary').focus();
    await page.keyboard.press('Enter');
    await page.getByText('the bot service cannot list chats').waitFor();
    expect(await list().locator('[aria-current=true]').textContent()).toMatch(/^Parcels/);
    await page.keyboard.press('Escape');
    expect(await list().getAttribute('open')).toBeNull();
    expect(await focused()).toBe('Chats');
    await page.keyboard.press('Enter');
    await list().getByRole('button', { name: 'Bills' }).waitFor();
    for (let at = 0; at < 2; at += 1) await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    expect(await calls()).toEqual([['open', 'd']]);
    expect(await list().getAttribute('open')).toBeNull();
    expect(await focused()).toBe('Message');
  });

  test('closes when the focus goes elsewhere, and is not there without a chat', async () => {
    await showChats(CHATS);
    await list().locator('summary').click();
    await button('Sign out').focus();
    expect(await list().getAttribute('open')).toBeNull();
    await showChats([]);
    expect(await list().isVisible()).toBe(false);
  });

  test('has the open chat forgotten only if the user agrees', async () => {
    await showChats(CHATS);
    for (const answer of ['dismiss', 'accept'] as const) {
      page.once('dialog', (dialog) => void dialog[answer]());
      await list().evaluate((element) => element.setAttribute('open', ''));
      await button('Forget this chat').click();
    }
    expect(await calls()).toEqual([['reset']]);
  });

  test('is where a new chat begins without a question, and another bot is chosen', async () => {
    await showChats(CHATS);
    await input().fill('Draft');
    await button('New chat').click();
    await page.getByLabel('Bot').selectOption('acme/other');
    expect(await calls()).toEqual([['begin'], ['onBot', 'acme/other']]);
    expect(await input().inputValue()).toBe('Draft');
  });
});

describeInChromium('the chat', () => {
  test('does not touch the row of a message that has not changed', async () => {
    const changes = await page.evaluate(async () => {
      const { set, question, answer } = globalThis as ChatWindow;
      const kept = [question('Hello'), answer({ text: 'Hello.' })];
      set({ messages: kept });
      const [first, second] =
        document.querySelector('#chat')?.shadowRoot?.querySelectorAll('.messages > li') ?? [];
      let count = 0;
      const observer = new MutationObserver((records) => {
        count += records.length;
      });
      for (const row of [first, second])
        observer.observe(row as Element, {
          subtree: true,
          childList: true,
          attributes: true,
          characterData: true,
        });
      set({ messages: [...kept, answer({ text: 'More', state: 'streaming' })], status: 'streaming' });
      await new Promise((resolve) => requestAnimationFrame(resolve));
      return count;
    });
    expect(changes).toBe(0);
  });

  test('signs in with a password', async () => {
    await enter('sign-in');
    await page.getByLabel('User name').fill('ada');
    await page.getByLabel('Password').fill('secret');
    await page.keyboard.press('Enter');
    expect(await calls()).toEqual([['signIn', 'ada', 'secret']]);
    await page.evaluate(() => {
      const session = { user: { id: 'ada', name: 'Ada' }, idleExpiresAt: '', absoluteExpiresAt: '' };
      (globalThis as ChatWindow).set({ session });
    });
    expect(await focused()).toBe('Message');
  });

  test('keeps what was written until the user has signed in again', async () => {
    await input().fill('Draft');
    await page.evaluate(() => (globalThis as ChatWindow).set({ session: null }));
    await button('Send').click();
    expect(await calls()).toEqual([]);
    expect(await input().inputValue()).toBe('Draft');
  });

  test.each([
    { mode: 'password', draft: '' },
    // A guest is a new user in each session.
    { mode: 'guest', draft: 'Draft' },
  ] as const)(
    'forgets what was written when another user signs in, who is no guest: $mode',
    async ({ mode, draft }) => {
      await page.evaluate((mode) => (globalThis as ChatWindow).show({ mode }), mode);
      await input().fill('Draft');
      await page.evaluate(() => {
        const { set } = globalThis as ChatWindow;
        set({ session: null });
        const user = { id: 'bob', name: 'Bob' };
        set({ session: { user, idleExpiresAt: '', absoluteExpiresAt: '' } });
      });
      expect(await input().inputValue()).toBe(draft);
    },
  );

  test('signs out, and begins a new chat only if the user agrees', async () => {
    await enter('done');
    page.once('dialog', (dialog) => void dialog.dismiss());
    await button('New chat').click();
    page.once('dialog', (dialog) => void dialog.accept());
    await button('New chat').click();
    await button('Sign out').click();
    expect(await calls()).toEqual([['reset'], ['signOut']]);
  });

  test('can be used with the keyboard alone', async () => {
    await enter('done');
    const reached: (string | null | undefined)[] = [];
    await page.locator('#chat').evaluate(() => document.querySelector<HTMLElement>('h1')?.focus());
    for (let at = 0; at < 14; at += 1) {
      await page.keyboard.press('Tab');
      reached.push(await focused());
    }
    expect(reached.filter(Boolean)).toEqual([
      ...['New chat', 'Sign out', 'Conversation', 'its page', 'Copy', 'Code (sh)', 'Table', 'Copy answer'],
      ...['Ask again', 'Good answer', 'Bad answer', 'Message', 'Attach files', 'Send'],
    ]);
  });

  test('shows 10,000 messages, of which those out of view cost no layout', async () => {
    const shown = await page.evaluate(async () => {
      const { set, question, answer } = globalThis as ChatWindow;
      const many = Array.from({ length: 5_000 }, (_, at) => [
        question(`${at}`),
        answer({ text: `**${at}**` }),
      ]);
      set({ messages: many.flat() });
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      const rows = document
        .querySelector('#chat')
        ?.shadowRoot?.querySelectorAll('.messages > li > *') as NodeListOf<Element>;
      return [...rows].filter((row) => row.checkVisibility({ contentVisibilityAuto: true })).length;
    });
    expect(await page.locator('.messages > li').count()).toBe(10_000);
    expect(shown).toBeGreaterThan(0);
    expect(shown).toBeLessThan(200);
  });
});

describeInChromium('the cursor of an answer that comes', () => {
  afterEach(() => page.emulateMedia({ reducedMotion: null }));

  test.each([
    { reducedMotion: 'no-preference', running: ['blink'] },
    { reducedMotion: 'reduce', running: [] },
  ] as const)('blinks, and stands still for who wants less motion: $reducedMotion', async (one) => {
    await page.emulateMedia({ reducedMotion: one.reducedMotion });
    await enter('streaming');
    const { running, width } = await page.locator('.answer-text > :last-child').evaluate((block) => {
      const cursor = getComputedStyle(block, '::after');
      const animations = block.getAnimations({ subtree: true });
      return {
        running: animations.map((each) => each instanceof CSSAnimation && each.animationName),
        width: Number.parseFloat(cursor.inlineSize),
      };
    });
    expect(running).toEqual(one.running);
    expect(width).toBeGreaterThan(0);
  });
});

interface Look {
  readonly name: string;
  readonly width: number;
  readonly height: number;
  readonly scale?: number;
  readonly colorScheme?: 'light' | 'dark';
  readonly forcedColors?: 'active' | 'none';
}
const LOOKS: readonly Look[] = [
  { name: 'light', width: 1000, height: 700 },
  { name: 'dark on a phone', width: 375, height: 667, colorScheme: 'dark' },
  { name: 'light on a narrow phone', width: 320, height: 568 },
  { name: 'enlarged to 200 %', width: 640, height: 360, scale: 2 },
  { name: 'forced colours', width: 1000, height: 700, forcedColors: 'active' },
];

/** Faults by axe-core's rules, and whether the page must be scrolled sideways. */
async function faultsOf(): Promise<string[]> {
  // The log scrolls to its end in the frame after it has grown; then no text lies elsewhere than axe-core looks.
  await twoFrames();
  const { violations } = await page.evaluate((runOnly) => {
    const { axe } = globalThis as typeof globalThis & {
      axe: { run(root: Document, options: RunOptions): Promise<AxeResults> };
    };
    return axe.run(document, { resultTypes: ['violations'], runOnly });
  }, RULES);
  const isTooWide = await page.evaluate(() => {
    const chat = document.querySelector('#chat')?.shadowRoot?.querySelector('.chat');
    const log = chat?.querySelector('.log');
    const isWider = (element?: Element | null) =>
      element ? element.scrollWidth > element.clientWidth + 1 : false;
    return isWider(document.documentElement) || isWider(chat) || isWider(log);
  });
  return [
    ...violations.map(
      ({ id, nodes }) => `${id}: ${nodes.map((one) => `${one.html} ${one.failureSummary}`).join()}`,
    ),
    ...(isTooWide ? ['it is wider than the window'] : []),
  ];
}

async function look({ width, height, scale = 1, colorScheme = 'light', forcedColors = 'none' }: Look) {
  await page.emulateMedia({ colorScheme, forcedColors, reducedMotion: 'reduce' });
  const session = await page.context().newCDPSession(page);
  await session.send('Emulation.setDeviceMetricsOverride', {
    width,
    height,
    deviceScaleFactor: scale,
    mobile: false,
  });
  await page.waitForFunction((wanted) => innerWidth === wanted, width);
  return session;
}

describeInChromium('every state of the chat', () => {
  beforeAll(() => page.evaluate(AXE));

  test.each(LOOKS)('has no fault: $name', async (one) => {
    const session = await look(one);
    const faults: string[] = [];
    for (const name of Object.keys(STATES)) {
      await page.evaluate((name) => (globalThis as ChatWindow).enter(name), name);
      if (FOLDER) {
        mkdirSync(FOLDER, { recursive: true });
        const { data } = await session.send('Page.captureScreenshot', { format: 'png' });
        writeFileSync(
          join(FOLDER, `${one.name.replace(/\W+/g, '-')}-${name}.png`),
          Buffer.from(data, 'base64'),
        );
      }
      faults.push(...(await faultsOf()).map((fault) => `${name}: ${fault}`));
    }
    expect(faults).toEqual([]);
  });
});
