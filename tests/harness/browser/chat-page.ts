import type { Page } from 'playwright-core';
import { type RelayProcess, startProcess } from '../relay/process.ts';

/** Starts a demo relay that several tests can share; its chat page is at `/`. */
export const startDemoRelay = (environment: Record<string, string> = {}): RelayProcess =>
  startProcess({ environment: { PORT: '0', ...environment } });

/** Signs in at the chat, and waits until something can be written. */
export async function signIn(page: Page, user = { name: 'demo', password: 'demo' }): Promise<void> {
  await page.getByLabel('User name').fill(user.name);
  await page.getByLabel('Password').fill(user.password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
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

/** Opens the list, and the chat in it whose title begins with `title`. */
export async function chooseChat(page: Page, title: string): Promise<void> {
  await page.locator('summary').click();
  await page.locator('.panel').getByRole('button', { name: title }).click();
}

export async function chooseBot(page: Page, bot: string): Promise<void> {
  await page.getByLabel('Bot').selectOption(bot);
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
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
