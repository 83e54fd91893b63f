/// <reference lib="dom" />
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { AxeResults, RunOptions } from 'axe-core';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { serveElementPage } from '../support/element-page.ts';
import type { FakeLoadBalancer } from '../support/fake-load-balancer.ts';
import { STATES } from './pages/chat-states.ts';
import type { ChatWindow } from './pages/chat-view.ts';

/** The folder for pictures of every state. Without it, no pictures are taken. */
const FOLDER = process.env.SCREENSHOTS;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

let front: FakeLoadBalancer;
let page: Page;
let complaints: string[];
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  front = await serveElementPage("import '../../../tests/client/pages/chat-view.ts';");
  ({ page, complaints } = await chromium.open(`${front.url}/`));
  await page.waitForFunction('globalThis.show');
  await page.evaluate(AXE);
});
afterAll(() => front?.close());

interface Look {
  readonly name: string;
  readonly width: number;
  readonly height: number;
  readonly scale?: number;
  readonly colorScheme?: 'light' | 'dark';
  readonly forcedColors?: 'active' | 'none';
}
const LOOKS: readonly Look[] = [
  { name: 'light', width: 1000, height: 700 },
  { name: 'dark on a phone', width: 375, height: 667, colorScheme: 'dark' },
  { name: 'light on a narrow phone', width: 320, height: 568 },
  { name: 'enlarged to 200 %', width: 640, height: 360, scale: 2 },
  { name: 'forced colours', width: 1000, height: 700, forcedColors: 'active' },
];

/** Faults by axe-core's rules, and whether the page must be scrolled sideways. */
async function faultsOf(): Promise<string[]> {
  const { violations } = await page.evaluate((runOnly) => {
    const { axe } = globalThis as typeof globalThis & {
      axe: { run(root: Document, options: RunOptions): Promise<AxeResults> };
    };
    return axe.run(document, { resultTypes: ['violations'], runOnly });
  }, RULES);
  const isTooWide = await page.evaluate(() => {
    const chat = document.querySelector('#chat')?.shadowRoot?.querySelector('.chat');
    const log = chat?.querySelector('.log');
    const isWider = (element?: Element | null) =>
      element ? element.scrollWidth > element.clientWidth + 1 : false;
    return isWider(document.documentElement) || isWider(chat) || isWider(log);
  });
  return [
    ...violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join()}`),
    ...(isTooWide ? ['it is wider than the window'] : []),
  ];
}

async function look({ width, height, scale = 1, colorScheme = 'light', forcedColors = 'none' }: Look) {
  await page.emulateMedia({ colorScheme, forcedColors, reducedMotion: 'reduce' });
  const session = await page.context().newCDPSession(page);
  await session.send('Emulation.setDeviceMetricsOverride', {
    width,
    height,
    deviceScaleFactor: scale,
    mobile: false,
  });
  await page.waitForFunction((wanted) => innerWidth === wanted, width);
  return session;
}

describeInChromium('every state of the chat', () => {
  test.each(LOOKS)('has no fault: $name', async (one) => {
    const session = await look(one);
    const faults: string[] = [];
    for (const name of Object.keys(STATES)) {
      await page.evaluate((name) => (globalThis as ChatWindow).enter(name), name);
      if (FOLDER) {
        mkdirSync(FOLDER, { recursive: true });
        const { data } = await session.send('Page.captureScreenshot', { format: 'png' });
        writeFileSync(
          join(FOLDER, `${one.name.replace(/\W+/g, '-')}-${name}.png`),
          Buffer.from(data, 'base64'),
        );
      }
      faults.push(...(await faultsOf()).map((fault) => `${name}: ${fault}`));
    }
    expect({ faults, complaints }).toEqual({ faults: [], complaints: [] });
  });
});
