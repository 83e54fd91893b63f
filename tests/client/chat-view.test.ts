/// <reference lib="dom" />
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { serveElementPage } from '../support/element-page.ts';
import type { FakeLoadBalancer } from '../support/fake-load-balancer.ts';
import type { ChatWindow } from './pages/chat-view.ts';

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
const later = (ms: number) => page.waitForTimeout(ms);

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
      form?.requestSubmit();
      element.value = 'Two';
      form?.requestSubmit();
    });
    expect(await calls()).toEqual([['send', 'One']]);
    await later(350);
    await button('Send').click();
    expect(await calls()).toEqual([
      ['send', 'One'],
      ['send', 'Two'],
    ]);
  });

  test('has Stop beside Send while an answer comes, and gives the focus back to the text', async () => {
    expect(await button('Stop').count()).toBe(0);
    await enter('streaming');
    await later(350);
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
    await later(350);
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
    await page.locator('.files li[data-state=error]').waitFor();
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
    await page.getByText('Waiting for the answer · 1 s').waitFor();
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

  test('that failed says why, with its request id, and is asked for again once', async () => {
    await enter('failed');
    await page.getByText('The answer is not complete. The bot service cannot be reached.').waitFor();
    await button('Copy request id').first().click();
    await page.waitForFunction(async () => (await navigator.clipboard.readText()) === '0a1b2c3d-request');
    expect(await button(/^Ask again in (90|89) s$/).getAttribute('aria-disabled')).toBe('true');
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
    const long = (lines: number) =>
      page.evaluate((lines) => {
        const { set, answer } = globalThis as ChatWindow;
        set({ messages: [answer({ id: 'one', state: 'streaming', text: 'line\n\n'.repeat(lines) })] });
      }, lines);
    const log = page.getByRole('log');
    const left = () => log.evaluate((one) => one.scrollHeight - one.scrollTop - one.clientHeight);
    await long(100);
    await later(100);
    await long(120);
    await later(300);
    expect(await left()).toBeLessThan(5);
    await log.evaluate((one) => one.scrollTo(0, 100));
    await later(100);
    await long(160);
    await later(100);
    expect(await log.evaluate((one) => one.scrollTop)).toBe(100);
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

  test('leaves nothing behind when it is removed, even while an answer is waited for', async () => {
    const session = await page.context().newCDPSession(page);
    const nodes = async () => {
      // The chat before this one has counted its last second.
      await later(1_500);
      await session.send('HeapProfiler.collectGarbage');
      return (await session.send('Memory.getDOMCounters')).nodes;
    };
    await enter('submitted');
    const before = await nodes();
    await page.evaluate(() => {
      for (let count = 0; count < 50; count += 1) (globalThis as ChatWindow).enter('submitted');
    });
    expect((await nodes()) / before).toBeLessThan(1.5);
    await session.detach();
  });

  test('shows 10,000 messages, and adds one in a small part of the time', async () => {
    const { first, one } = await page.evaluate(async () => {
      const { set, question, answer } = globalThis as ChatWindow;
      const many = Array.from({ length: 5_000 }, (_, at) => [
        question(`${at}`),
        answer({ text: `**${at}**` }),
      ]);
      const log = document.querySelector('#chat')?.shadowRoot?.querySelector('.log');
      const msOf = (messages: ReturnType<typeof question>[]) => {
        const before = performance.now();
        set({ messages });
        log?.getBoundingClientRect();
        return performance.now() - before;
      };
      return { first: msOf(many.flat()), one: msOf([...many.flat(), question('One more')]) };
    });
    expect(await page.locator('.messages > li').count()).toBe(10_001);
    expect(one).toBeLessThan(first / 10);
  });
});
