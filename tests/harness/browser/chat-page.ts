import type { Locator, Page } from 'playwright-core';
import { type RelayProcess, startProcess } from '../relay/process.ts';

/** Starts a demo relay that several tests can share; its chat page is at `/`. */
export const startDemoRelay = (environment: Record<string, string> = {}): RelayProcess =>
  startProcess({ environment: { PORT: '0', ...environment } });

/** Signs in at the chat, and waits until something can be written. */
export async function signIn(page: Page, user = { name: 'demo', password: 'demo' }): Promise<void> {
  await page.getByLabel('User name').fill(user.name);
  await page.getByLabel('Password').fill(user.password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await account(page).waitFor();
}

/** The button that shows who is signed in. */
export const account = (page: Page | Locator) => page.locator('summary.account');

/** Signs out by the menu of the account. */
export async function signOut(page: Page | Locator): Promise<void> {
  await account(page).click();
  await page.getByRole('button', { name: 'Sign out' }).click();
}

/**
 * Writes a message, sends it with Enter, and resolves when the page has taken it. A press within 300 ms of the one before
 * is the second one of a double-click: the page does not take it, and the text stays.
 */
export async function say(page: Page, text: string): Promise<void> {
  const field = page.getByRole('textbox', { name: 'Message' });
  await field.fill(text);
  await page.keyboard.press('Enter');
  await field.and(page.locator(':placeholder-shown')).waitFor();
}

/** Begins a new chat. A page shows it in its next frame; until then, it has the answers of the chat before. */
export async function newChat(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'New chat' }).click();
  await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
}

/** The chats in the list. */
export const chats = (page: Page | Locator) => page.locator('.chat-list [part~=chat]');

/** Opens the chat of the list whose title has `title`. */
export const chooseChat = (page: Page, title: string) => chats(page).filter({ hasText: title }).click();

/** Deletes the chat that is open, or the one whose title has `title`. */
export async function deleteChat(page: Page | Locator, title?: string): Promise<void> {
  const open = page.locator('.chat-list li:has([aria-current])');
  await (title ? page.locator('.chat-list li', { hasText: title }) : open).hover();
  await page.locator('.chat-list li:hover [part~=delete-chat]').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
}

export async function chooseBot(page: Page, bot: string): Promise<void> {
  await page.getByLabel('Bot', { exact: true }).selectOption(bot);
  await account(page).waitFor();
}

/** Resolves when the last message is an answer in one of `states`. */
export async function lastAnswer(page: Page, ...states: string[]): Promise<void> {
  const each = states.map((state) => `.answer[data-state=${state}]:last-child`);
  await page.locator(each.join()).waitFor();
}

/** A message whose answer takes `seconds` at 60 ms a word. */
export const longMessage = (seconds: number) => 'word '.repeat(seconds * 16).trim();

/** Resolves when the last answer shows its first words. */
export async function someWords(page: Page): Promise<void> {
  await page.locator('.answer[data-state=streaming]:last-child .text', { hasText: 'word word' }).waitFor();
}

/** All questions and answers that the page shows. */
export const texts = (page: Page) => page.locator('.messages .text').allTextContents();

/** All that the browser keeps for the page and for this tab. */
export const stored = (page: Page) =>
  page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
