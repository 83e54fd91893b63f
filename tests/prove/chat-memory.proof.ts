/// <reference lib="dom" />
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import type { CDPSession } from 'playwright-core';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { type ChatFront, openChatFront } from '../harness/browser/chat-front.ts';
import { signIn } from '../harness/browser/chat-page.ts';
import { describeInChromium, oneChromium, type Tab } from '../harness/browser/chromium.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

const MESSAGES = Number(process.env.CHAT_MESSAGES ?? 1_000);
const MOUNTS = 50;
/** What may be more at the end: compiled code and caches of the browser, none of which grow with what was done. */
const MOST = { bytes: 1_000_000, nodes: 60, listeners: 12 };

let service: BotService;
let relay: TestRelay;
let chat: ChatFront;
const chromium = oneChromium();
beforeAll(async () => {
  service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 0 }, limit: 100_000 });
  const environment = { RATE_LIMIT: '1000', LOG_LEVEL: 'error', CHAT_PAGE: 'on', BOTS: 'demo/echo' };
  relay = await startRelay(service.url, environment);
});
afterAll(async () => {
  await chat?.front.close();
  await relay.close();
  await service.close();
});
jest.setTimeout(600_000);

/** Sends messages, one after the other, begins another chat, changes between them, and has both forgotten. */
async function talk({ page }: Tab, messages: number): Promise<void> {
  await page.locator('bot-chat').evaluate(async (chat, messages) => {
    const root = chat.shadowRoot as ShadowRoot;
    const find = <T extends Element>(selector: string) => root.querySelector(selector) as T;
    const { now } = performance;
    let skew = 0;
    // No press counts as the second one of a double-click.
    performance.now = () => now.call(performance) + skew;
    const until = async (isSo: () => boolean) => {
      while (!isSo()) await new Promise((resolve) => requestAnimationFrame(resolve));
    };
    const press = (selector: string) => find<HTMLElement>(selector).click();
    const count = (selector: string) => root.querySelectorAll(selector).length;
    const text = find<HTMLTextAreaElement>('textarea');
    const ask = async (times: number) => {
      for (let sent = 1; sent <= times; sent += 1) {
        skew += 1_000;
        text.value = `Message **${sent}**`;
        text.form?.requestSubmit();
        await until(() => count('.answer[data-state=done]') === sent);
      }
    };
    // A tab also shows what another tab has said in the same chat.
    if (count('.messages > li') > 0) press('[part~=new-chat]');
    await until(() => count('.messages > li') === 0);
    await ask(messages);
    press('[part~=new-chat]');
    await until(() => count('.messages > li') === 0);
    await ask(1);
    performance.now = now;
    for (const answers of [messages, 1]) {
      press('[part~=chat]:not([aria-current])');
      await until(() => count('.answer') === answers);
      press('li:has([aria-current]) [part~=delete-chat]');
      press('dialog [part~=yes]');
      await until(() => count('.messages > li') === 0);
    }
    // What was announced to screen readers goes after some seconds.
    await until(() => count('[aria-live=polite] > p') === 0);
  }, messages);
}

async function mount({ page }: Tab, times: number): Promise<void> {
  await page.evaluate(async (times) => {
    const chat = document.querySelector('bot-chat') as HTMLElement;
    const main = chat.parentElement as HTMLElement;
    for (let count = 0; count < times; count += 1) {
      document.querySelector('bot-chat')?.remove();
      const next = main.appendChild(document.createElement('bot-chat'));
      while (!next.shadowRoot?.querySelector('.empty:not([hidden])'))
        await new Promise((resolve) => requestAnimationFrame(resolve));
    }
  }, times);
}

async function measure(session: CDPSession) {
  for (let count = 0; count < 3; count += 1) await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  const { nodes, jsEventListeners } = await session.send('Memory.getDOMCounters');
  return { bytes: usedSize, nodes, listeners: jsEventListeners };
}

describeInChromium(`${MESSAGES} messages in two tabs, and ${MOUNTS} mounts of the element`, () => {
  test('leave no memory, no nodes and no listeners behind', async () => {
    chat = await openChatFront(chromium, relay.port);
    await signIn(chat.page, USER);
    const tabs: Tab[] = [chat, await chat.openTab()];
    const sessions = await Promise.all(tabs.map(({ page }) => chat.profile.newCDPSession(page)));
    const work = async (messages: number, mounts: number) => {
      for (const tab of tabs) {
        await tab.page.bringToFront();
        await talk(tab, messages / tabs.length);
        await mount(tab, mounts);
      }
      return Promise.all(sessions.map(measure));
    };
    const before = await work(MESSAGES / 10, 5);
    const after = await work(MESSAGES, MOUNTS);
    const more = after.map((one, at) => ({
      bytes: one.bytes - (before[at]?.bytes ?? 0),
      nodes: one.nodes - (before[at]?.nodes ?? 0),
      listeners: one.listeners - (before[at]?.listeners ?? 0),
    }));
    process.stdout.write(`${JSON.stringify({ before, after })}\n`);
    for (const name of ['bytes', 'nodes', 'listeners'] as const)
      expect({ name, most: Math.max(...more.map((one) => one[name])) <= MOST[name] }).toEqual({
        name,
        most: true,
      });
    expect(tabs.flatMap(({ complaints }) => complaints)).toEqual([]);
  });
});
