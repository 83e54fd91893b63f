import type { BrowserContext, Page } from 'playwright-core';
import { type Chromium, startChromium } from './chromium.ts';
import { type RelayProcess, startProcess } from './process.ts';

/** A demo relay of its own process with its chat page open in a tab of a new profile. */
export interface ChatDemo {
  readonly relay: RelayProcess;
  readonly url: string;
  readonly page: Page;
  readonly profile: BrowserContext;
  /** What the browser complains of, but for answers that are no success. */
  readonly complaints: string[];
}

/** Starts both; `environment` is the relay's. */
export async function openChat(
  chromium: Chromium,
  environment: Record<string, string> = {},
  profileOptions: Parameters<Chromium['browser']['newContext']>[0] = {},
): Promise<ChatDemo> {
  const relay = startProcess({ environment: { PORT: '0', ...environment } });
  const url = `http://localhost:${await relay.listening()}${environment.BASE_PATH ?? ''}/`;
  const profile = await chromium.browser.newContext(profileOptions);
  return { relay, url, profile, ...(await chromium.open(url, profile)) };
}

export { startChromium };

/** Signs in as the form is filled in. */
export async function signIn(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('body[data-session=in]').waitFor();
}

/** Writes a message and sends it with Enter. */
export async function say(page: Page, text: string): Promise<void> {
  await page.locator('#text').fill(text);
  await page.locator('#text').press('Enter');
}

/** Resolves when the last answer is in one of `states`. */
export async function lastAnswer(page: Page, ...states: string[]): Promise<void> {
  const each = states.map((state) => `.answer[data-state=${state}]:last-child`);
  await page.locator(each.join()).waitFor();
}

/** A message whose answer takes `seconds` to be spoken. */
export const longMessage = (seconds: number) => 'word '.repeat(seconds * 16).trim();

/** Resolves when the last answer has begun to show its words. */
export async function someWords(page: Page): Promise<void> {
  await page.locator('.answer[data-state=streaming]:last-child .text', { hasText: 'word word' }).waitFor();
}
