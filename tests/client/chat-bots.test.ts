/// <reference lib="dom" />
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { lastAnswer, say, signIn } from '../harness/browser/chat-page.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { type ChatFront, openChatFront } from '../harness/faults/chat-front.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

let service: BotService;
let relay: TestRelay;
const fronts: ChatFront[] = [];
const chromium = oneChromium();
beforeAll(async () => {
  service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 1 }, limit: 1000 });
  const environment = { BOTS: 'demo/echo,demo/tools', CHAT_PAGE: 'on', OPERATIONS: 'message,chat,files' };
  relay = await startRelay(service.url, environment);
});
let complaints: string[];
afterEach(() => expect(complaints).toEqual([]));
afterAll(async () => {
  for (const { front } of fronts) await front.close();
  await relay.close();
  await service.close();
});

/** The chat page in a new profile, with a user who is signed in and has written something. */
async function open(): Promise<ChatFront> {
  const opened = await openChatFront(chromium, relay.port);
  fronts.push(opened);
  ({ complaints } = opened);
  await signIn(opened.page, USER);
  await input(opened.page).fill('Draft');
  return opened;
}
const input = (page: Page) => page.getByRole('textbox', { name: 'Message' });
const rows = (page: Page) => page.locator('.files li');
const note = { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };
const attach = (page: Page) => page.locator('input[type=file]').setInputFiles(note);

async function choose(page: Page, bot: string): Promise<void> {
  await page.getByLabel('Bot').selectOption(bot);
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
}

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
    const { page } = await open();
    await attach(page);
    await page.locator('.files li[data-state=done]').waitFor();
    await choose(page, 'demo/tools');
    expect(await rows(page).count()).toBe(0);
    expect(await sent(page)).toEqual({ bot: 'tools', text: 'Draft', blobIds: undefined });
    await choose(page, 'demo/echo');
    expect(await rows(page).count()).toBe(0);
    await say(page, 'Again');
    await lastAnswer(page, 'done');
    expect(await page.locator('.sent-files').count()).toBe(0);
  });

  test('is no longer uploaded, and says nothing about it', async () => {
    const { page } = await open();
    const held = new Promise<void>((resolve) => page.route('**/blob', () => resolve()));
    const failed = page.waitForEvent('requestfailed', (request) => request.url().endsWith('/blob'));
    await attach(page);
    await held;
    expect(await rows(page).count()).toBe(1);
    await choose(page, 'demo/tools');
    expect((await failed).failure()?.errorText).toBe('net::ERR_ABORTED');
    expect(await rows(page).count()).toBe(0);
    expect(await sent(page)).toEqual({ bot: 'tools', text: 'Draft', blobIds: undefined });
    expect(await page.locator('.why:visible', { hasText: /\S/ }).count()).toBe(0);
    expect(await page.locator('[aria-live=polite] p', { hasText: 'note.txt' }).count()).toBe(0);
  });

  test('can be attached again, and then goes to that one', async () => {
    const { page } = await open();
    await attach(page);
    await page.locator('.files li[data-state=done]').waitFor();
    await choose(page, 'demo/tools');
    const uploaded = page.waitForResponse('**/bot-provider/tools/blob');
    await attach(page);
    const { data } = await (await uploaded).json();
    await page.locator('.files li[data-state=done]').waitFor();
    const { blobIds } = await sent(page);
    expect(blobIds).toEqual([[data].flat()[0].blobId]);
  });
});
