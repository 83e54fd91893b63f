/// <reference lib="dom" />
import { afterAll, afterEach, beforeAll, expect } from '@jest/globals';
import type { BrowserContextOptions, JSHandle, Page } from 'playwright-core';
import type { ChatWindow } from '../../client/pages/chat-view.ts';
import type { FakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { oneChromium } from './chromium.ts';
import { serveElementPage } from './element-page.ts';

/** One tab with the view of the chat, whose channel the tests play, for all tests of a file. Each test fails that has errors in it. */
export function chatTab(profile: BrowserContextOptions = {}) {
  let front: FakeLoadBalancer;
  let page: Page;
  let chat: JSHandle<ChatWindow>;
  let complaints: string[];
  const chromium = oneChromium({ keepsTabs: true });
  beforeAll(async () => {
    front = await serveElementPage("import '../../../tests/client/pages/chat-view.ts';");
    ({ page, complaints } = await chromium.open(`${front.url}/`, await chromium.browser.newContext(profile)));
    await page.waitForFunction('globalThis.show');
    chat = await page.evaluateHandle(() => globalThis as ChatWindow);
  });
  afterEach(() => expect(complaints).toEqual([]));
  afterAll(() => front?.close());
  return {
    get page() {
      return page;
    },
    /** The globals of the page: `chat.evaluate(({ set }) => set(…))`. */
    get chat() {
      return chat;
    },
    /** Shows a new chat in one of the states. */
    enter: (state: string) => chat.evaluate(({ enter }, name) => enter(name), state),
    /** What was asked of the channel, the client and the list of chats. */
    calls: () => chat.evaluate(({ calls }) => calls),
    button: (name: string | RegExp) => page.getByRole('button', { name, exact: typeof name === 'string' }),
    input: () => page.getByRole('textbox', { name: 'Message' }),
    /** What screen readers are told now. */
    announced: () => page.locator('[aria-live=polite] p').allTextContents(),
    /** The element with the focus, in the shadow of the chat. */
    focused: () =>
      page.evaluate(() => {
        const element = document.querySelector('#chat')?.shadowRoot?.activeElement;
        return element?.getAttribute('aria-label') ?? element?.textContent;
      }),
    /** Moves the clock of the page on, so that the next press is none of a double click. */
    later: () =>
      page.evaluate(() => {
        const now = performance.now.bind(performance);
        performance.now = () => now() + 1_000;
      }),
    /** Resolves when all has been laid out and scrolled, and scripts have been told. */
    twoFrames: () => chat.evaluate(({ twoFrames }) => twoFrames()),
  };
}
