import type { BrowserContext, Page } from 'playwright-core';
import { type Chromium, startChromium } from './chromium.ts';
import { type RelayProcess, startProcess } from './process.ts';

/** A demo relay as a process, with its chat page open in a tab of a new profile. */
export interface ChatDemo {
  readonly relay: RelayProcess;
  readonly url: string;
  readonly page: Page;
  readonly profile: BrowserContext;
  /** Errors and warnings of the browser, without those about answers of 4xx and 5xx. */
  readonly complaints: string[];
}

/** Starts both. `environment` is that of the relay, or a relay that several tests share. */
export async function openChat(
  chromium: Chromium,
  environment: Record<string, string> | RelayProcess = {},
  profileOptions: Parameters<Chromium['browser']['newContext']>[0] = {},
): Promise<ChatDemo> {
  const isShared = isRelay(environment);
  const relay = isShared ? environment : startDemoRelay(environment);
  const path = isShared ? '' : (environment.BASE_PATH ?? '');
  const url = `http://localhost:${await relay.listening()}${path}/`;
  const profile = await chromium.browser.newContext(profileOptions);
  return { relay, url, profile, ...(await chromium.open(url, profile)) };
}

const isRelay = (of: object): of is RelayProcess => 'listening' in of;

/** Starts a demo relay that several tests can share. */
export const startDemoRelay = (environment: Record<string, string> = {}): RelayProcess =>
  startProcess({ environment: { PORT: '0', ...environment } });

export { startChromium };

/** Submits the form for signing in, as it is filled in. */
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

/** A message whose answer takes `seconds`. */
export const longMessage = (seconds: number) => 'word '.repeat(seconds * 16).trim();

/** Resolves when the last answer shows its first words. */
export async function someWords(page: Page): Promise<void> {
  await page.locator('.answer[data-state=streaming]:last-child .text', { hasText: 'word word' }).waitFor();
}
