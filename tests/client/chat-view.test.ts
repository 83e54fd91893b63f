/// <reference lib="dom" />
import { beforeEach, expect, test } from '@jest/globals';
import { account, signOut } from '../harness/browser/chat-page.ts';
import { chatTab } from '../harness/browser/chat-tab.ts';
import { describeInChromium } from '../harness/browser/chromium.ts';
import type { ChatWindow } from './pages/chat-view.ts';

const tab = chatTab();
const { announced, button, calls, enter, focused, input, later } = tab;
beforeEach(async () => {
  await tab.page.setViewportSize({ width: 1280, height: 720 });
  await enter('empty');
});

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

  test('has Stop in the place of Send while an answer comes, and gives the focus back to the text', async () => {
    expect(await button('Stop').count()).toBe(0);
    const place = (name: string) =>
      button(name).evaluate((one) => JSON.stringify(one.getBoundingClientRect()));
    await tab.chat.evaluate(({ set, answer }) => {
      set({ messages: [answer({ text: 'x' })] });
    });
    const before = await place('Send');
    await enter('streaming');
    expect(await place('Stop')).toBe(before);
    expect(await button('Send').count()).toBe(0);
    await later();
    await button('Stop').focus();
    await tab.page.keyboard.press('Enter');
    expect(await calls()).toEqual([['stop']]);
    await tab.chat.evaluate(({ set }) => set({ status: 'ready' }));
    expect(await button('Stop').count()).toBe(0);
    expect(await focused()).toBe('Message');
  });

  test('stops with Escape while an answer comes, and then alone', async () => {
    await input().press('Escape');
    expect(await calls()).toEqual([]);
    await enter('streaming');
    await later();
    await input().press('Escape');
    expect(await calls()).toEqual([['stop']]);
  });

  test('takes the last question back with the arrow up, if nothing is written', async () => {
    await enter('done');
    await input().fill('Draft');
    await input().press('ArrowUp');
    expect(await input().inputValue()).toBe('Draft');
    await input().fill('');
    await input().press('ArrowUp');
    expect(await input().inputValue()).toBe('Where is my parcel?\nI wait for it.');
    await input().press('Enter');
    expect(await calls()).toEqual([['send', 'Where is my parcel?\nI wait for it.']]);
  });

  test('takes a question to edit below what is written already', async () => {
    await enter('done');
    await input().fill('Draft');
    await button('Edit').click();
    expect(await focused()).toBe('Message');
    expect(await input().inputValue()).toBe('Draft\n\nWhere is my parcel?\nI wait for it.');
  });

  test.each([
    [
      'comes back if it was refused for good',
      { code: 'body_too_large', status: 413, retryable: false },
      'Long',
    ],
    ['is gone if it may have run', { code: 'connection_lost', status: 0 }, ''],
  ])('has a text that %s', async (_, failed, left) => {
    await tab.chat.evaluate(({ answerSends, answer }, failed) => {
      answerSends(answer({ failed }));
    }, failed);
    await input().fill('Long');
    await input().press('Enter');
    await tab.twoFrames();
    expect(await calls()).toEqual([['send', 'Long']]);
    expect(await input().inputValue()).toBe(left);
  });

  test.each<[state: string, name: string, call: unknown[]]>([
    ['empty', 'Where is my parcel?', ['send', 'Where is my parcel?']],
    ['done', 'Regenerate', ['regenerate', expect.any(String)]],
    ['consent', 'Allow once', ['consent', '2', true]],
    ['done', 'Send', ['send', 'One']],
  ])('takes two clicks for one, which would be two paid runs: %s, %s', async (state, name, call) => {
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
    expect(await calls()).toEqual([call, call]);
  });

  test('stops at once, also directly after a message was sent', async () => {
    await enter('streaming');
    await input().fill('Next');
    await input().press('Enter');
    await button('Stop').click();
    expect(await calls()).toEqual([['send', 'Next'], ['stop']]);
  });
});

describeInChromium('the files of a message', () => {
  const PART = { type: 'file', mediaType: 'text/plain', filename: 'a.txt', url: '/a', blobId: 'b' } as const;
  const finish = (part?: typeof PART) =>
    tab.chat.evaluate(({ finishUpload }, part) => finishUpload(part), part);
  const file = { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };

  test('are uploaded at once, and sent with the message', async () => {
    await tab.page.locator('input[type=file]').setInputFiles(file);
    await tab.page.getByText('Uploading 50 %').waitFor();
    await input().fill('See');
    await button('Send').click();
    await tab.page.getByText('A file is still being uploaded.').waitFor();
    await finish(PART);
    await tab.page.getByText('Uploading').waitFor({ state: 'detached' });
    await later();
    await button('Send').click();
    expect(await calls()).toEqual([
      ['upload', 'a.txt', 4],
      ['send', { text: 'See', files: [PART] }],
    ]);
    expect(await tab.page.locator('.files li').count()).toBe(0);
  });

  test('can be removed while they are uploaded', async () => {
    await tab.page.locator('input[type=file]').setInputFiles(file);
    await button('Remove a.txt').click();
    expect(await calls()).toEqual([
      ['upload', 'a.txt', 4],
      ['aborted', 'a.txt'],
    ]);
    expect(await focused()).toBe('Message');
  });

  test('say why they were not uploaded, and are not sent', async () => {
    await tab.page.locator('input[type=file]').setInputFiles(file);
    await finish(undefined);
    const row = tab.page.locator('.files li[data-state=error]');
    await row.getByText('This is too large. Send less at once.', { exact: true }).waitFor();
    expect(await announced()).toEqual(['a.txt is not attached. This is too large. Send less at once.']);
    await input().fill('Without');
    await button('Send').click();
    expect((await calls()).at(-1)).toEqual(['send', 'Without']);
  });

  test('come back with their message if it was refused for good', async () => {
    await tab.chat.evaluate(({ answerSends, answer }) => {
      answerSends(answer({ failed: { code: 'body_too_large', status: 413, retryable: false } }));
    });
    await tab.page.locator('input[type=file]').setInputFiles(file);
    await finish(PART);
    await input().press('Enter');
    await tab.page.locator('.files li[data-state=done]').waitFor();
    await tab.chat.evaluate(({ answerSends }) => answerSends(undefined));
    await later();
    await input().press('Enter');
    expect((await calls()).slice(1)).toEqual(Array(2).fill(['send', { text: '', files: [PART] }]));
    expect(await tab.page.locator('.files li').count()).toBe(0);
  });

  test('are seen if they are pictures, also in their message, until the user has left', async () => {
    await enter('picture');
    const pictures = tab.page.locator('img.thumbnail');
    const widths = () =>
      pictures.evaluateAll((all) => all.map((one) => (one as HTMLImageElement).naturalWidth));
    expect(await widths()).toEqual([320, 320]);
    const url = await pictures.first().getAttribute('src');
    const revoked = await tab.chat.evaluate(({ show }) => {
      const { revokeObjectURL } = URL;
      const urls: string[] = [];
      URL.revokeObjectURL = (one) => {
        urls.push(one);
        revokeObjectURL(one);
      };
      show();
      URL.revokeObjectURL = revokeObjectURL;
      return urls;
    });
    expect(revoked).toEqual([url]);
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

  test('are asked for while they are over the chat', async () => {
    await enter('dropping');
    const text = await tab.page
      .locator('.chat')
      .evaluate((chat) => getComputedStyle(chat, '::after').content);
    expect(text).toBe('"Attach files"');
  });
});

const CHATS = [
  { id: 'c', title: 'Parcels', at: Date.now() },
  { id: 'd', title: 'Bills', at: 0 },
];
const showChats = (chats: typeof CHATS) =>
  tab.chat.evaluate(({ show, set, question }, chats) => {
    show({ chats, bots: ['acme/helper', 'acme/other'] });
    set({ messages: [question('Parcels')] });
  }, chats);
const row = (title: string) => tab.page.locator('.chat-list li', { hasText: title });
const dialog = () => tab.page.locator('dialog');

describeInChromium('the list of chats', () => {
  test('is a sheet in a narrow box, which is opened, read and left with the keyboard', async () => {
    await tab.page.setViewportSize({ width: 400, height: 700 });
    await showChats(CHATS);
    expect(await row('Parcels').isVisible()).toBe(false);
    await button('Chats').focus();
    await tab.page.keyboard.press('Enter');
    await tab.page.getByText('kept in this browser alone').waitFor();
    expect(await focused()).toBe('New chat');
    expect(await row('Parcels').locator('[aria-current=true]').count()).toBe(1);
    // What is behind it cannot be used.
    await input().evaluate((element) => element.focus());
    expect(await focused()).toBe('New chat');
    await tab.page.keyboard.press('Escape');
    expect(await row('Parcels').isVisible()).toBe(false);
    expect(await focused()).toBe('Chats');
    await tab.page.keyboard.press('Enter');
    // Over the button that hides it, and the three of the first chat.
    for (let at = 0; at < 5; at += 1) await tab.page.keyboard.press('Tab');
    await tab.page.keyboard.press('Enter');
    expect(await calls()).toEqual([['open', 'd']]);
    expect(await row('Bills').isVisible()).toBe(false);
    expect(await focused()).toBe('Message');
  });

  test('closes in a narrow box when something beside it is pressed', async () => {
    await tab.page.setViewportSize({ width: 400, height: 700 });
    await showChats(CHATS);
    await button('Chats').click();
    await tab.page.mouse.click(390, 500);
    expect(await row('Parcels').isVisible()).toBe(false);
    expect(await focused()).toBe('Chats');
  });

  test('stands beside the conversation in a wide box, can be hidden, and is not there while nobody is signed in', async () => {
    await showChats([]);
    await tab.page.getByText('Your chats appear here.').waitFor();
    await showChats(CHATS);
    expect(await row('Bills').isVisible()).toBe(true);
    expect(await button('Chats').isVisible()).toBe(false);
    await button('Hide the chats').click();
    expect(await row('Bills').isVisible()).toBe(false);
    expect(await focused()).toBe('Chats');
    await button('Chats').click();
    expect(await row('Bills').isVisible()).toBe(true);
    await tab.chat.evaluate(({ setUser }) => setUser(null));
    expect(await row('Bills').isVisible()).toBe(false);
    expect(await button('Chats').isVisible()).toBe(false);
  });

  test('has a chat deleted only if the user agrees', async () => {
    await showChats(CHATS);
    for (const answer of ['Cancel', 'Delete']) {
      await row('Bills').hover();
      await button('Delete Bills').click();
      await dialog().getByRole('button', { name: answer, exact: true }).click();
      await dialog().waitFor({ state: 'detached' });
    }
    await button('Delete Parcels').focus();
    await tab.page.keyboard.press('Enter');
    await dialog().waitFor();
    await tab.page.keyboard.press('Escape');
    await dialog().waitFor({ state: 'detached' });
    expect(await focused()).toBe('Delete Parcels');
    expect(await calls()).toEqual([['forget', 'd']]);
  });

  test.each([
    // The field of the name has the focus.
    ['Rename Bills', null, ''],
    ['Delete Bills', null, ''],
    ['Delete Bills', 'bob', 'Delete Bills'],
  ])('closes its dialog when the user has left: %s', async (name, user, focus) => {
    await showChats(CHATS);
    await button(name).focus();
    await tab.page.keyboard.press('Enter');
    await dialog().waitFor();
    await tab.chat.evaluate(({ setUser }, user) => setUser(user), user);
    await dialog().waitFor({ state: 'detached' });
    expect(await calls()).toEqual([]);
    expect(await focused()).toBe(focus);
  });

  test('has a chat renamed with the keyboard', async () => {
    await showChats(CHATS);
    await button('Rename Bills').focus();
    await tab.page.keyboard.press('Enter');
    await tab.page.getByRole('textbox', { name: 'Title of the chat' }).fill(' Invoices ');
    await tab.page.keyboard.press('Enter');
    await dialog().waitFor({ state: 'detached' });
    expect(await calls()).toEqual([['rename', 'd', 'Invoices']]);
    expect(await focused()).toBe('Rename Bills');
  });

  test('is where a new chat begins without a question, and another bot is chosen', async () => {
    await showChats(CHATS);
    await input().fill('Draft');
    await button('New chat').click();
    await tab.page.getByLabel('Bot', { exact: true }).selectOption('acme/other');
    expect(await calls()).toEqual([['begin'], ['onBot', 'acme/other']]);
    expect(await input().inputValue()).toBe('Draft');
  });
});

describeInChromium('the chat', () => {
  test('does not touch the row of a message that has not changed', async () => {
    const changes = await tab.chat.evaluate(async ({ set, question, answer }) => {
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

  test('keeps what was written until the user has signed in again', async () => {
    const leave = () => tab.chat.evaluate(({ setUser }) => setUser(null));
    await leave();
    expect(await input().isVisible()).toBe(false);
    await enter('empty');
    await input().fill('Draft');
    await leave();
    expect(await button('Send').getAttribute('aria-disabled')).toBe('true');
    await button('Send').click({ force: true });
    expect(await focused()).toBe('');
    expect(await calls()).toEqual([]);
    expect(await input().inputValue()).toBe('Draft');
  });

  test('shows what was said only while somebody is signed in', async () => {
    await enter('done');
    const isShown = () => tab.page.locator('.log').isVisible();
    expect(await isShown()).toBe(true);
    await enter('signed-out');
    expect(await isShown()).toBe(false);
    await tab.chat.evaluate(({ setUser }) => setUser('ada'));
    expect(await isShown()).toBe(true);
  });

  test.each([
    { mode: 'password', draft: '' },
    // A guest is a new user in each session.
    { mode: 'guest', draft: 'Draft' },
  ] as const)(
    'forgets what was written when another user signs in, who is no guest: $mode',
    async ({ mode, draft }) => {
      await tab.chat.evaluate(({ show }, mode) => show({ mode }), mode);
      await input().fill('Draft');
      await tab.chat.evaluate(({ setUser }) => {
        setUser(null);
        setUser('bob');
      });
      expect(await input().inputValue()).toBe(draft);
    },
  );

  test('signs out, and begins a new chat only if the user agrees', async () => {
    await enter('done');
    for (const answer of ['Cancel', 'New chat']) {
      await button('New chat').click();
      await dialog().getByRole('button', { name: answer, exact: true }).click();
      await dialog().waitFor({ state: 'detached' });
    }
    await signOut(tab.page);
    expect(await calls()).toEqual([['reset'], ['signOut']]);
  });

  test('has the focus where the user writes when the message that had it is loaded again', async () => {
    await tab.chat.evaluate(({ set, answer }) => {
      set({ messages: [answer({ text: 'x' })] });
    });
    await button('Copy answer').focus();
    await tab.chat.evaluate(({ set, answer }) => {
      set({ messages: [answer({ text: 'x' })] });
    });
    expect(await focused()).toBe('Message');
  });

  test('has a menu of the account, which closes with Escape, and when something else is pressed', async () => {
    await enter('done');
    const isOpen = () => button('Sign out').isVisible();
    await account(tab.page).focus();
    await tab.page.keyboard.press('Enter');
    await tab.page.getByText('Signed in as Ada').waitFor();
    await tab.page.keyboard.press('Escape');
    expect([await isOpen(), await focused()]).toEqual([false, 'Account of Ada']);
    await account(tab.page).click();
    await tab.page.getByText('Signed in as Ada').click();
    expect(await isOpen()).toBe(true);
    await tab.page.locator('.log').click();
    expect(await isOpen()).toBe(false);
    await account(tab.page).click();
    await input().focus();
    expect(await isOpen()).toBe(false);
  });

  test('can be used with the keyboard alone', async () => {
    await enter('done');
    const reached: (string | null | undefined)[] = [];
    await tab.page.locator('#chat').evaluate(() => document.querySelector<HTMLElement>('h1')?.focus());
    for (let at = 0; at < 16; at += 1) {
      await tab.page.keyboard.press('Tab');
      reached.push(await focused());
    }
    expect(reached.filter(Boolean)).toEqual([
      ...[
        'New chat',
        'Account of Ada',
        'Conversation',
        'Copy message',
        'Edit',
        'its page',
        'Copy',
        'Code (sh)',
        'Table',
      ],
      'Copy answer',
      ...['Regenerate', 'Good answer', 'Bad answer', 'Message', 'Attach files', 'Send'],
    ]);
  });

  test('shows 1,000 messages, of which those out of view cost no layout', async () => {
    const shown = await tab.chat.evaluate(async ({ set, question, answer }) => {
      const many = Array.from({ length: 500 }, (_, at) => [question(`${at}`), answer({ text: `**${at}**` })]);
      set({ messages: many.flat() });
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      const rows = document
        .querySelector('#chat')
        ?.shadowRoot?.querySelectorAll('.messages > li > *') as NodeListOf<Element>;
      return [...rows].filter((row) => row.checkVisibility({ contentVisibilityAuto: true })).length;
    });
    expect(await tab.page.locator('.messages > li').count()).toBe(1_000);
    expect(shown).toBeGreaterThan(0);
    expect(shown).toBeLessThan(200);
  });
});
