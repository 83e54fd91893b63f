/// <reference lib="dom" />
import { afterAll, afterEach, beforeAll, expect } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { type BotService, startBotService } from '../../../src/service/bot-service.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../relay/relay.ts';
import { heldEcho } from '../service/held-echo.ts';
import { lastAnswer, say } from './chat-page.ts';
import { oneChromium } from './chromium.ts';

interface OpenOptions {
  /** Who is signed in, if anybody is. */
  readonly user?: typeof USER | null;
  /** Opens another tab of the same browser. */
  readonly beside?: Page;
  /** Opens a tab of a new browser, which is slower: for pages that are no relay's, and for tests that set a clock. */
  readonly isNew?: boolean;
  /** Runs before the page is loaded. */
  readonly before?: (page: Page) => unknown;
}

/**
 * One bot service, and one tab of one Chromium, for all tests of a file. Each test gets the tab with nothing kept; it fails
 * if there are errors in one of its tabs.
 */
export function chatStage() {
  const chromium = oneChromium({ keepsTabs: true });
  const { brain, goOn } = heldEcho();
  let service: BotService;
  let usual: Page;
  const relays: TestRelay[] = [];
  const complaints: string[][] = [];
  const taken = () => complaints.flatMap((all) => all.splice(0)).filter((one) => !one.includes('net::ERR_'));
  async function newTab(context: BrowserContext): Promise<Page> {
    const tab = await chromium.open('about:blank', context);
    complaints.push(tab.complaints);
    return tab.page;
  }
  async function newBrowser(): Promise<Page> {
    const context = await chromium.browser.newContext();
    await context.addInitScript(everyPressCounts);
    return newTab(context);
  }
  /** The tab of all tests, in which nothing is kept for the pages at `url`. */
  async function emptied(url: string): Promise<Page> {
    await usual.context().clearCookies();
    // It has no script.
    await usual.goto(new URL('/client/bot-chat.txt', url).href);
    await usual.evaluate(() => {
      localStorage.clear();
      sessionStorage.clear();
    });
    return usual;
  }
  beforeAll(async () => {
    const brains = { 'demo/echo': brain };
    service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 1 }, limit: 1000, brains });
    usual = await newBrowser();
  });
  afterEach(async () => {
    goOn();
    const found = taken();
    for (const context of chromium.browser.contexts()) if (context !== usual.context()) await context.close();
    for (const page of usual.context().pages()) if (page !== usual) await page.close();
    await usual.unrouteAll({ behavior: 'ignoreErrors' });
    for (const event of ['request', 'requestfailed', 'response'] as const) usual.removeAllListeners(event);
    await usual.emulateMedia({ colorScheme: null });
    await usual.goto('about:blank');
    taken();
    expect(found).toEqual([]);
  });
  afterAll(async () => {
    for (const relay of relays) await relay.close();
    await service.close();
  });
  return {
    chromium,
    /** Has all answers to `HELD` go on. */
    goOn,
    /** Starts a relay with the chat page, for all tests of the file. */
    async relay(environment: Record<string, string> = {}): Promise<TestRelay> {
      const relay = await startRelay(service.url, {
        ...{
          BOTS: 'demo/echo,demo/tools',
          OPERATIONS: 'message,chat,files',
          CHAT_PAGE: 'on',
          ...environment,
        },
      });
      relays.push(relay);
      return relay;
    },
    /** Opens the chat page of a relay, or another page. */
    async open(
      at: TestRelay | string,
      { user = USER, beside, isNew, before }: OpenOptions = {},
    ): Promise<Page> {
      const url = typeof at === 'string' ? at : `${at.url}/chat`;
      const tab = () => (isNew ? newBrowser() : emptied(url));
      const page = await (beside ? newTab(beside.context()) : tab());
      if (user && !beside && typeof at !== 'string') {
        const [name = '', value = ''] = (await at.signIn(user)).split(/=(.*)/);
        await page.context().addCookies([{ name, value, url }]);
      }
      await before?.(page);
      await page.goto(url);
      return page;
    },
    /** The errors in the tabs of this test, which then does not fail. What cannot be reached is no error of the page. */
    complaints: taken,
  };
}

/** However fast a test presses, no press is the second one of a double click. */
function everyPressCounts(): void {
  const now = performance.now.bind(performance);
  let skew = 0;
  performance.now = () => now() + skew;
  const skip = () => {
    skew += 1_000;
  };
  for (const press of ['keydown', 'pointerdown']) addEventListener(press, skip, true);
}

/** Says something, and waits for the answer. */
export async function ask(page: Page, text: string): Promise<void> {
  await say(page, text);
  await lastAnswer(page, 'done');
}
