/// <reference lib="dom" />
import type { Page } from 'playwright-core';
import { DEMO_USER } from '../../../src/process/demo.ts';
import { until } from '../clock/until.ts';
import type { RelayProcess } from '../relay/process.ts';

/** A message whose answer takes some seconds. */
const LONG = 'word '.repeat(60).trim();
/** The same for a page that is loaded during the answer, and then needs a while until it shows it. */
const LONGER = 'word '.repeat(150).trim();
/** Its answer is looked at while it comes, which happens twice a second. */
const HELLO = `Hello, how are you ${'and you '.repeat(12)}today?`;

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const last = (page: Page, state: string) =>
  page.locator(`li[data-from=assistant][data-state=${state}]:last-child`);

async function say(page: Page, text: string): Promise<void> {
  await page.getByLabel('Message').fill(text);
  await button(page, 'Send').click();
}

async function signIn(page: Page, password: string): Promise<void> {
  await page.getByLabel('Name').fill(DEMO_USER.name);
  await page.getByLabel('Password').fill(password);
  await button(page, 'Sign in').click();
}

/** Signs in; before that, a wrong password is refused with the id of the request. */
export async function signsIn(page: Page): Promise<void> {
  await signIn(page, 'wrong');
  await page
    .getByRole('alert')
    .filter({ hasText: /password.* Request: [\w-]{36}/ })
    .waitFor();
  await signIn(page, DEMO_USER.password);
  await button(page, 'Send').waitFor();
}

/** Notes, from now on, all that the page shows as its last entry: a piece of an answer may be there for a moment only. */
const noteLast = (page: Page) =>
  page.evaluateHandle(() => {
    const shown: string[] = [];
    const note = () => {
      const entry = document.querySelector<HTMLElement>('li[data-from=assistant]:last-child');
      if (entry) shown.push(`${entry.dataset.state} ${entry.textContent.trim()}`);
    };
    const changes = { subtree: true, childList: true, characterData: true, attributes: true };
    new MutationObserver(note).observe(document, changes);
    return shown;
  });

/** Gets an answer, which comes in several pieces. */
export async function getsAnAnswer(page: Page): Promise<void> {
  const noted = await noteLast(page);
  await say(page, HELLO);
  await last(page, 'done')
    .filter({ hasText: /^\s*You said: Hello, how are you (and you )+today\?\s*$/ })
    .waitFor();
  const shown = await noted.jsonValue();
  if (!shown.some((text) => /^streaming You said:(?!.*today)/.test(text)))
    throw new Error(`the answer did not come in pieces: ${JSON.stringify(shown)}`);
}

/** Stops an answer. */
export async function stopsAnAnswer(page: Page): Promise<void> {
  await say(page, LONG);
  await last(page, 'streaming').filter({ hasText: 'word' }).waitFor();
  await button(page, 'Stop').click();
  await last(page, 'stopped').waitFor();
  // It is disabled, or gives its place to the other button.
  await button(page, 'Stop').and(page.locator(':enabled')).waitFor({ state: 'detached' });
}

/**
 * Reloads the page in the middle of an answer, which goes on to its end. The relay and its bot service stand still until
 * the new page asks for something: the answer does not end while a slow machine loads the page.
 */
export async function goesOnAfterReload(page: Page, relay: RelayProcess): Promise<void> {
  await say(page, LONGER);
  await last(page, 'streaming').filter({ hasText: 'word' }).waitFor();
  relay.signal('SIGSTOP');
  try {
    const asked = page.waitForRequest(/\/(auth|client|generic)\//);
    await page.reload({ waitUntil: 'commit' });
    await asked;
  } finally {
    relay.signal('SIGCONT');
  }
  await last(page, 'streaming').filter({ hasText: 'word' }).waitFor();
  await last(page, 'done')
    .filter({ hasText: `You said: ${LONGER}` })
    .waitFor();
}

/** How many calls of the operation `name` the relay has answered well. Its log has a line for each that has ended. */
const callsAt = (relay: RelayProcess, name: string) =>
  relay.stdout().match(RegExp(`"method":"POST","route":"[^"]*/${name}","status":200`, 'g'))?.length ?? 0;

/** How many messages and stops the relay has answered well, as soon as it has written so many lines of them. */
export async function callsOnce(relay: RelayProcess, messages: number, stops: number): Promise<number[]> {
  const calls = () => ['message/sse', 'message/suspend'].map((name) => callsAt(relay, name));
  await until(() => {
    const [sent = 0, stopped = 0] = calls();
    return sent >= messages && stopped >= stops;
  });
  return calls();
}

/** Begins another chat, renames it, and deletes the one before, in the example that has a list of chats. */
export async function listsChats(page: Page): Promise<void> {
  const chats = page.getByRole('navigation', { name: 'Chats' }).getByRole('listitem');
  await button(page, 'New chat').click();
  await getsAnAnswer(page);
  const [newest, other] = [chats.nth(0), chats.nth(1)];
  await newest.hover();
  await newest.getByRole('button', { name: /^Rename/ }).click();
  await page.getByLabel('Title of the chat').fill('Mine');
  await page.keyboard.press('Enter');
  await newest.getByText('Mine').waitFor();
  await other.hover();
  await other.getByRole('button', { name: /^Delete/ }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await other.waitFor({ state: 'detached' });
  await page.reload();
  await last(page, 'done').waitFor();
  await page.getByRole('heading', { name: 'Mine' }).waitFor();
}

/** Shows that a sign-out has failed, without the id of a request, which has had no answer. */
export async function showsFailedSignOut(page: Page): Promise<void> {
  await page.route('**/auth/logout', (route) => route.abort());
  await page.getByRole('button', { name: /^Sign out/ }).click();
  await page
    .getByRole('alert')
    .filter({ hasText: /^\s*The server is unreachable\.\s*$/ })
    .waitFor();
  await page.unroute('**/auth/logout');
}

/** Waits until the page says that the client comes back to the answer. */
const showsBreak = (page: Page) => last(page, 'reconnecting').waitFor();

/** Kills the relay in the middle of an answer; returns after how many ms the page notices that the stream is broken. */
export async function noticesBreak(page: Page, relay: RelayProcess): Promise<number> {
  await say(page, LONG);
  await last(page, 'streaming').filter({ hasText: 'word' }).waitFor();
  const noticed = showsBreak(page);
  const killed = performance.now();
  relay.signal('SIGKILL');
  await noticed;
  return performance.now() - killed;
}
