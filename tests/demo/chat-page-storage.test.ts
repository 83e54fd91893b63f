/// <reference lib="dom" />
import { afterAll, beforeAll, expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import type { Config } from '../../src/config/config.ts';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { type ChatFront, openChatFront } from '../support/chat-front.ts';
import { lastAnswer, say, signIn } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay, USER } from '../support/relay.ts';
import { testSideBySide } from '../support/side-by-side.ts';

const OPERATIONS: Config['operations'] = ['message', 'chat', 'files'];

let service: BotService;
let relays: Record<'scoped' | 'shared', TestRelay>;
const fronts: ChatFront['front'][] = [];
beforeAll(async () => {
  service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 1 }, limit: 1000 });
  const environment = { BOTS: 'demo/echo', OPERATIONS: OPERATIONS.join() };
  const [scoped, shared] = await Promise.all([
    startRelay(service.url, environment),
    startRelay(service.url, { ...environment, CHANNELS: 'shared' }),
  ]);
  relays = { scoped, shared };
});
const chromium = oneChromium({ keepsTabs: true });
afterAll(async () => {
  for (const front of fronts) await front.close();
  for (const relay of Object.values(relays)) await relay.close();
  await service.close();
});

async function open(mode: 'scoped' | 'shared' = 'scoped'): Promise<ChatFront> {
  const opened = await openChatFront(chromium, relays[mode].port, {
    ...{ authMode: 'password', bots: ['demo/echo'], operations: OPERATIONS, channels: { mode } },
  });
  fronts.push(opened.front);
  return opened;
}
async function signInAs(page: Page, user: typeof USER): Promise<void> {
  await page.getByLabel('User name').fill(user.name);
  await page.getByLabel('Password').fill(user.password);
  await signIn(page);
}
const signOut = (page: Page) => page.getByRole('button', { name: 'Sign out' }).click();
/** Sends a message with a file, and waits for its answer. */
async function sendFile(page: Page, name: string): Promise<void> {
  await page.locator('#file').setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from('text') });
  await page
    .locator('#live', { hasText: `${name} is attached.` })
    .last()
    .waitFor({ state: 'attached' });
  const answers = await page.locator('.answer').count();
  await say(page, 'See');
  await page.locator('.answer').nth(answers).waitFor();
  await lastAnswer(page, 'done');
}
const stored = (page: Page) =>
  page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
/** Runs `use` in a tab with the conversation of `user`. */
const withStored = <T>(page: Page, user: string, use: string) =>
  page.evaluate(`import('./chat-store.js')
    .then(({ storedConversation }) => storedConversation('', '${user}', 'demo/echo'))
    .then(${use})`) as Promise<T>;

describeInChromium('what the chat page keeps in the browser', () => {
  testSideBySide(
    [
      [
        'has no name of a file after the sign-out, in no tab',
        async () => {
          const { page, openTab, complaints } = await open();
          await signInAs(page, USER);
          const { page: other } = await openTab();
          await other.locator('body[data-session=in]').waitFor();
          await sendFile(page, 'first.txt');
          await sendFile(other, 'second.txt');
          expect(await stored(page)).toContain('first.txt');
          await signOut(page);
          for (const one of [page, other]) {
            await one.locator('body[data-session=out]').waitFor();
            expect(await stored(one)).not.toMatch(/first|second/);
          }
          expect(complaints).toEqual([]);
        },
      ],
      [
        'has no name of a file of the user before, whose session has only ended',
        async () => {
          const { page, profile } = await open();
          await signInAs(page, USER);
          await sendFile(page, 'first.txt');
          await profile.clearCookies();
          await page.reload();
          await signInAs(page, OTHER_USER);
          await sendFile(page, 'second.txt');
          expect(await stored(page)).toContain('second.txt');
          expect(await stored(page)).not.toContain('first.txt');
        },
      ],
      [
        'is the id until the sign-out where all users share conversations',
        async () => {
          const { page } = await open('shared');
          await signInAs(page, USER);
          await say(page, 'Hello');
          await lastAnswer(page, 'done');
          await page.reload();
          await page.locator('.answer').waitFor();
          await signOut(page);
          await page.locator('body[data-session=out]').waitFor();
          expect(await stored(page)).not.toContain('"id');
          expect(await stored(page)).not.toContain('conversations');
        },
      ],
      [
        'is one id for tabs that are opened at the same time',
        async () => {
          const { page, openTab } = await open();
          const { page: other } = await openTab();
          for (const user of ['1', '2', '3', '4']) {
            const at = Date.now() + 150;
            const id = `async ({ id }) => id`;
            const [one, two] = await Promise.all(
              [page, other].map(async (tab) => {
                await tab.evaluate(
                  (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
                  at - Date.now(),
                );
                return withStored<string>(tab, user, id);
              }),
            );
            expect(two).toBe(one);
          }
        },
      ],
      [
        'has the names of the files of every tab',
        async () => {
          const { page, openTab } = await open();
          const { page: other } = await openTab();
          // Each tab keeps its conversation open.
          for (const tab of [page, other]) await withStored(tab, 'ada', '(own) => void (window.own = own)');
          await page.evaluate('own.addFile("1", "one")');
          await other.evaluate('own.addFile("2", "two")');
          await page.evaluate('own.addFile("3", "three")');
          const names = '(own) => ["1", "2", "3"].map(own.nameOf).filter(Boolean)';
          expect(await withStored(page, 'ada', names)).toEqual(['one', 'three']);
          expect(await withStored(other, 'ada', names)).toEqual(['two']);
        },
      ],
      [
        'gives a file a link that opens in a new tab, but not if another file has its name',
        async () => {
          const { page } = await open();
          await signInAs(page, USER);
          await sendFile(page, 'a.txt');
          await sendFile(page, 'b.txt');
          const links = page.locator('.question .files a');
          expect(await links.allTextContents()).toEqual(['a.txt', 'b.txt']);
          expect(await links.first().getAttribute('target')).toBe('_blank');
          expect(await links.first().getAttribute('rel')).toBe('noopener');
          await sendFile(page, 'a.txt');
          for (const when of ['at once', 'after a reload']) {
            expect([when, await links.allTextContents()]).toEqual([when, ['b.txt']]);
            expect(await page.locator('.question .files li').allTextContents()).toEqual([
              ...['a.txt', 'b.txt', 'a.txt'],
            ]);
            if (when === 'at once') await page.reload();
            await page.locator('.question').nth(2).waitFor();
          }
        },
      ],
    ],
    3,
  );
});
