/// <reference lib="dom" />
import { beforeAll, expect, test } from '@jest/globals';
import type { Page, Route } from 'playwright-core';
import { plainTitle } from '../../src/client/element/plain-title.ts';
import {
  account,
  chats,
  chooseBot,
  chooseChat,
  deleteChat,
  lastAnswer,
  newChat,
  say,
  signIn,
  signOut,
  stored,
  texts,
} from '../harness/browser/chat-page.ts';
import { ask, chatStage } from '../harness/browser/chat-stage.ts';
import { describeInChromium } from '../harness/browser/chromium.ts';
import { OTHER_USER, type TestRelay } from '../harness/relay/relay.ts';
import { HELD } from '../harness/service/held-echo.ts';

const UNUSED_MS = 301_000;

const stage = chatStage();
let relay: TestRelay;
beforeAll(async () => {
  relay = await stage.relay();
});

/** The chat page in a new profile, with a user who is signed in. */
const open = () => stage.open(relay);
/** A second tab of the same browser. */
const openTab = (page: Page) => stage.open(relay, { beside: page });
const empty = (page: Page) => page.getByRole('heading', { name: 'How can I help?' });
const answerTo = (page: Page, text: string) => page.locator('.answer', { hasText: `You said: ${text}` });
/** The titles in a list. A chat that was forgotten has none. */
function titlesOf(list: string): string[] {
  const rows: readonly string[][] = JSON.parse(list);
  return rows.flatMap(([, , , , title]) => title ?? []).sort();
}
const titles = async (page: Page) =>
  titlesOf(await page.evaluate(() => localStorage.getItem('bot-relay-chats') ?? '[]'));
const isForgotten = (page: Page, title: string) =>
  page.waitForFunction((title) => !localStorage.getItem('bot-relay-chats')?.includes(title), title);
const FILE = { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };
/** Attaches a file, and waits until its row has this state, if any. */
const attach = async (page: Page, state: string | null = 'done') => {
  await page.locator('input[type=file]').setInputFiles(FILE);
  if (state) await page.locator(`.files li[data-state=${state}]`).waitFor();
};
const input = (page: Page) => page.getByRole('textbox', { name: 'Message' });
const rows = (page: Page) => page.locator('.files li');
/** The chats `First` and `Second`, of which the second one is open. */
async function twoChats(page?: Page): Promise<Page> {
  page ??= await open();
  await ask(page, 'First');
  await newChat(page);
  await ask(page, 'Second');
  return page;
}
async function drafted(): Promise<Page> {
  const page = await open();
  await input(page).fill('Draft');
  return page;
}

describeInChromium('a chat in the list', () => {
  test('is the one that begins after the chat before it was forgotten', async () => {
    const page = await open();
    await ask(page, 'First');
    await deleteChat(page);
    await empty(page).waitFor();
    expect(await titles(page)).toEqual([]);
    await ask(page, 'Second');
    await newChat(page);
    await chooseChat(page, 'Second');
    await answerTo(page, 'Second').waitFor();
  });

  test('goes when it was forgotten, also if another one is open by then', async () => {
    const page = await twoChats();
    const { promise: held, resolve: hold } = Promise.withResolvers<Route>();
    await page.route('**/channel/clear*', hold);
    await deleteChat(page);
    const route = await held;
    await chooseChat(page, 'First');
    await answerTo(page, 'First').waitFor();
    const cleared = page.waitForResponse('**/channel/clear*');
    void route.continue();
    await cleared;
    await isForgotten(page, 'Second');
    expect(await titles(page)).toEqual(['First']);
  });

  test('is asked for again if it could not be loaded, also after another call', async () => {
    const page = await open();
    const again = page.getByRole('button', { name: 'Try again' });
    const why = page.locator('.composer .why');
    const alert = why.getByRole('alert');
    await ask(page, 'First');
    await page.route('**/channel/metadata?*', (route) => route.abort());
    await page.route('**/blob*', (route) => route.abort());
    await page.reload();
    await again.waitFor();
    expect(await empty(page).isVisible()).toBe(false);
    expect(await alert.allTextContents()).toEqual([
      'The assistant cannot be reached right now. Try again in a moment.',
    ]);
    await attach(page, 'error');
    await page.unroute('**/channel/metadata?*');
    await again.click();
    await answerTo(page, 'First').waitFor();
    expect(await texts(page)).toHaveLength(2);
    expect(await again.isVisible()).toBe(false);
    expect(await why.first().isVisible()).toBe(false);
  });

  test('can be forgotten if it could not be loaded', async () => {
    const page = await open();
    await ask(page, 'First');
    await page.route('**/channel/metadata?*', (route) => route.abort());
    await page.reload();
    await page.locator('.trouble .why', { hasText: /./ }).waitFor();
    await deleteChat(page);
    await isForgotten(page, 'First');
    await page.getByText('Your chats appear here.').waitFor();
  });

  test('keeps its attachments if it is chosen again, or could not be forgotten', async () => {
    const page = await open();
    await ask(page, 'First');
    await attach(page);
    await chooseChat(page, 'First');
    expect(await page.locator('.files li').count()).toBe(1);
    await page.route('**/channel/clear*', (route) => route.abort());
    const failed = page.waitForEvent('requestfailed');
    await deleteChat(page);
    await failed;
    await page.locator('.composer > .why', { hasText: /./ }).waitFor();
    expect(await page.locator('.files li').count()).toBe(1);
    expect(await titles(page)).toEqual(['First']);
  });
});

describeInChromium('the list of two tabs', () => {
  /** A tab that answers three changes of the list as if it had written at the same time: with the list of now. */
  const writeStale = (page: Page) =>
    page.evaluate(() => {
      const KEY = 'bot-relay-chats';
      const stale = localStorage.getItem(KEY) ?? '';
      let left = 3;
      const later = new Promise((resolve) => {
        addEventListener('storage', ({ key, newValue }) => {
          if (key !== KEY || newValue === stale) return;
          left -= 1;
          if (left < 0) resolve(newValue);
          else localStorage.setItem(KEY, stale);
        });
      });
      Object.assign(window, { later });
    });

  test('has the chats of both if they write at once', async () => {
    const page = await open();
    const other = await openTab(page);
    await ask(page, 'First');
    await newChat(page);
    await writeStale(other);
    await ask(page, 'Second');
    expect(await other.evaluate('later')).toMatch(/First.*Second|Second.*First/);
  });

  /** Two tabs with the chats `First` and `Second`, of which the second one is open. */
  async function twoTabs() {
    const page = await twoChats();
    const other = await openTab(page);
    await answerTo(other, 'Second').waitFor();
    return { page, other };
  }

  test('lacks a chat that one tab forgets right after the other has said something in it', async () => {
    const { page, other } = await twoTabs();
    // However slow this machine is, the other tab still looks after what it has written.
    await other.evaluate(() => {
      AbortSignal.timeout = () => new AbortController().signal;
    });
    await ask(other, 'More');
    const list = await other.evaluateHandle(() => {
      const KEY = 'bot-relay-chats';
      const forgotten = new Promise<string>((resolve) =>
        addEventListener('storage', ({ key, newValue }) => {
          // After the listener of the list itself.
          if (key === KEY && !newValue?.includes('Second')) resolve(localStorage.getItem(KEY) ?? '[]');
        }),
      );
      return { forgotten };
    });
    await deleteChat(page);
    expect(titlesOf(await list.evaluate(({ forgotten }) => forgotten))).toEqual(['First']);
  });

  test('lacks a chat that one tab forgets while the other writes an older list', async () => {
    const { page, other } = await twoTabs();
    await writeStale(other);
    await deleteChat(page);
    expect(titlesOf(await other.evaluate('later'))).toEqual(['First']);
  });

  test('lacks a chat that one tab has forgotten, also after the other has left it', async () => {
    const { page, other } = await twoTabs();
    await chooseChat(other, 'First');
    await answerTo(other, 'First').waitFor();
    await chooseChat(page, 'First');
    await answerTo(page, 'First').waitFor();
    // As if this tab had ended to look after what it writes.
    await page.evaluate(() => {
      AbortSignal.timeout = () => AbortSignal.abort();
    });
    await deleteChat(page);
    await isForgotten(other, 'First');
    await chooseChat(other, 'Second');
    await answerTo(other, 'Second').waitFor();
    await other.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
    expect(await titles(other)).toEqual(['Second']);
  });
});

describeInChromium('a new chat', () => {
  test('asks for nothing that was said before, so its first message leaves at once', async () => {
    const page = await open();
    await ask(page, 'First');
    const calls: string[] = [];
    page.on('request', (one) => calls.push(one.url().replace(/.*\/bot-provider\/\w+\//, one.method())));
    await newChat(page);
    await ask(page, 'Second');
    expect(calls[0]).toMatch(/^POSTmessage\/sse/);
    expect(calls.filter((one) => one.startsWith('GETmessage/sse'))).toEqual([]);
  });

  test('cannot be begun where nothing would lead back to the one before', async () => {
    const page = await stage.open(await stage.relay({ OPERATIONS: 'message' }));
    const isOffered = () => page.getByRole('button', { name: 'New chat' }).isVisible();
    await ask(page, 'First');
    expect(await isOffered()).toBe(false);
    await say(page, HELD);
    await page.getByRole('button', { name: 'Stop' }).click();
    await lastAnswer(page, 'stopped');
    expect(await isOffered()).toBe(false);
  });
});

/** Two elements of one page that show the same chat. A file is attached in the second one. */
async function twoElements() {
  const page = await open();
  await ask(page, 'First');
  await page.locator('bot-chat').evaluate((chat) => chat.after(chat.cloneNode()));
  const [one, two] = [page.locator('bot-chat').first(), page.locator('bot-chat').last()];
  await two.locator('.answer').waitFor();
  await two.locator('input[type=file]').setInputFiles(FILE);
  await two.locator('.files li[data-state=done]').waitFor();
  await two.getByRole('textbox', { name: 'Message' }).fill('Draft');
  return { page, one, two };
}

describeInChromium('what is attached in one of two elements with the same chat', () => {
  test.each([
    ['opens another chat', 'Draft', 'How can I help?'],
    ['forgets the chat', 'Draft', 'How can I help?'],
    ['signs out', '', 'You are signed out.'],
  ])('goes if its user %s in the other one', async (act, draft, heading) => {
    const { one, two } = await twoElements();
    if (act === 'forgets the chat') {
      await deleteChat(one);
    } else if (act === 'signs out') {
      await signOut(one);
    } else await one.getByRole('button', { name: 'New chat' }).click();
    await two.getByRole('heading', { name: heading }).waitFor();
    expect(await two.locator('.files li').count()).toBe(0);
    expect(await two.locator('textarea').inputValue()).toBe(draft);
  });

  test('stays when something is said in the other one', async () => {
    const { one, two } = await twoElements();
    await one.getByRole('textbox', { name: 'Message' }).fill('Second');
    await one.getByRole('textbox', { name: 'Message' }).press('Enter');
    await two.locator('.answer[data-state=done]', { hasText: 'You said: Second' }).waitFor();
    expect(await two.locator('.files li').count()).toBe(1);
  });
});

describeInChromium('the element', () => {
  test('asks nothing about the chats of a user who has left', async () => {
    const page = await twoChats(await stage.open(relay, { isNew: true }));
    await page.clock.install();
    await page.reload();
    await answerTo(page, 'Second').waitFor();
    await chooseChat(page, 'First');
    await answerTo(page, 'First').waitFor();
    // The chat that was open at first is no longer kept ready.
    await page.clock.fastForward(UNUSED_MS);
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await signOut(page);
    await page.getByRole('heading', { name: 'You are signed out.' }).waitFor();
    await signIn(page, OTHER_USER);
    await empty(page).waitFor();
    expect(asked.filter((path) => path.endsWith('/channel/metadata'))).toEqual([]);
    expect(await stored(page)).not.toMatch(/First|Second/);
  });

  test('keeps the draft when another bot is chosen', async () => {
    const page = await open();
    await input(page).fill('Draft');
    await chooseBot(page, 'demo/tools');
    expect(await input(page).inputValue()).toBe('Draft');
    const focused = page.locator('bot-chat').evaluate((chat) => chat.shadowRoot?.activeElement?.localName);
    expect(await focused).toBe('select');
    await signOut(page);
    await page.getByRole('heading', { name: 'You are signed out.' }).waitFor();
    expect(await page.locator('textarea').inputValue()).toBe('');
  });

  test.each([
    ['it names a conversation and no bot', (chat: Element) => chat.setAttribute('channel', 'c1')],
    ['the relay no longer names another one', (chat: Element) => chat.parentElement?.append(chat)],
  ])('talks with the first bot if %s', async (why, change) => {
    const page = await open();
    await chooseBot(page, 'demo/tools');
    if (why.startsWith('the relay'))
      await page.route('**/client/bot-chat.json', async (route) => {
        const response = await route.fetch();
        await route.fulfill({ json: { ...(await response.json()), bots: ['demo/echo'] } });
      });
    await page.locator('bot-chat').evaluate(change);
    await page.getByLabel('Bot', { exact: true }).waitFor({ state: 'detached' });
    await empty(page).waitFor();
    await input(page).fill('Hello');
    expect(await sent(page)).toMatchObject({ bot: 'echo' });
  });
});

/** Sends what is written; returns the bot to which it goes, and the files that go with it. */
async function sent(page: Page) {
  const request = page.waitForRequest('**/message/sse');
  await input(page).press('Enter');
  const { text, blobIds } = (await request).postDataJSON() as Record<string, unknown>;
  const [, bot] = /bot-provider\/([^/]+)/.exec((await request).url()) ?? [];
  await lastAnswer(page, 'done');
  return { bot, text, blobIds };
}

describeInChromium('what is attached when another bot is chosen', () => {
  test('is not sent to that one, nor later to the first one, while the draft is kept', async () => {
    const page = await drafted();
    await attach(page);
    await chooseBot(page, 'demo/tools');
    expect(await rows(page).count()).toBe(0);
    expect(await sent(page)).toEqual({ bot: 'tools', text: 'Draft', blobIds: undefined });
    await chooseBot(page, 'demo/echo');
    expect(await rows(page).count()).toBe(0);
    await say(page, 'Again');
    await lastAnswer(page, 'done');
    expect(await page.locator('.sent-files').count()).toBe(0);
  });

  test('is no longer uploaded, and says nothing about it', async () => {
    const page = await drafted();
    const held = new Promise<void>((resolve) => page.route('**/blob', () => resolve()));
    const failed = page.waitForEvent('requestfailed', (request) => request.url().endsWith('/blob'));
    await attach(page, null);
    await held;
    expect(await rows(page).count()).toBe(1);
    await chooseBot(page, 'demo/tools');
    expect((await failed).failure()?.errorText).toBe('net::ERR_ABORTED');
    expect(await rows(page).count()).toBe(0);
    expect(await sent(page)).toEqual({ bot: 'tools', text: 'Draft', blobIds: undefined });
    expect(await page.locator('.why:visible', { hasText: /\S/ }).count()).toBe(0);
    expect(await page.locator('[aria-live=polite] p', { hasText: 'note.txt' }).count()).toBe(0);
  });

  test('can be attached again, and then goes to that one', async () => {
    const page = await drafted();
    await attach(page);
    await chooseBot(page, 'demo/tools');
    const uploaded = page.waitForResponse('**/bot-provider/tools/blob');
    await attach(page);
    const { data } = await (await uploaded).json();
    const { blobIds } = await sent(page);
    expect(blobIds).toEqual([[data].flat()[0].blobId]);
  });
});

describeInChromium('the title of a chat', () => {
  const row = (page: Page, title: string) => page.locator('.chat-list li', { hasText: title });

  test('is what was said first, without Markdown', async () => {
    const page = await open();
    await ask(page, '## Where is **my** [parcel](https://example.com)?');
    await row(page, 'Where is my parcel?').waitFor();
    expect(await chats(page).allTextContents()).toEqual(['Where is my parcel?']);
    expect(plainTitle(`Hello${'\n'.repeat(2_000)}there`)).toBe('Hello');
  });

  test('is that of the bot service, and above it that of the user, also after a reload', async () => {
    const page = await open();
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
    await ask(page, 'And now?');
    expect(asked).toBe(1);
    const loaded = page.waitForResponse('**/channel/metadata?*');
    await page.reload();
    await loaded;
    await account(page).waitFor();
    await page.locator('.answer').nth(1).waitFor();
    expect(await chats(page).allTextContents()).toEqual(['Mine']);
  });
});
