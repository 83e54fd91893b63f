/// <reference lib="dom" />
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { AxeResults, RunOptions } from 'axe-core';
import type { Page } from 'playwright-core';
import { type ChatDemo, lastAnswer, openChat, say, signIn, startDemoRelay } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { type RelayProcess, stopProcesses } from '../support/process.ts';

/** The folder for pictures of every state. Without it, no pictures are taken. */
const FOLDER = process.env.SCREENSHOTS;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const LONG_WORD = 'Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft';

let relay: RelayProcess;
// It starts together with Chromium.
beforeAll(() => {
  relay = startDemoRelay({
    BOTS: 'demo/*',
    OPERATIONS: 'message,chat,files',
    RATE_LIMIT: '1',
    RATE_WINDOW_MS: '60000',
    RATE_MAX_WAIT_MS: '0',
    MAX_STREAMS_PER_USER: '4',
  });
});
const chromium = oneChromium();
afterAll(() => stopProcesses());

/** Faults of the page by axe-core's rules, and whether it must be scrolled sideways. */
async function faultsOf(page: Page): Promise<string[]> {
  const { violations } = await page.evaluate(() => {
    const { axe } = globalThis as unknown as {
      axe: { run(root: Document, options: RunOptions): Promise<AxeResults> };
    };
    return axe.run(document, {
      resultTypes: ['violations'],
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    });
  });
  const tooWide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  // On a large window the text field is always visible.
  const hidden = await page.evaluate(() => {
    const { hidden, clientHeight } = document.querySelector('#composer') as HTMLElement;
    const send = document.querySelector('#send')?.getBoundingClientRect();
    if (hidden || clientHeight === 0 || window.innerHeight < 416) return false;
    return document.elementFromPoint((send?.x ?? 0) + 9, (send?.y ?? 0) + 9)?.id !== 'send';
  });
  return [
    ...violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join()}`),
    ...(tooWide ? ['it is wider than the window'] : []),
    ...(hidden ? ['the composer is out of sight'] : []),
  ];
}

const SIZES = {
  wide: { width: 1000, height: 700, deviceScaleFactor: 1 },
  narrow: { width: 320, height: 568, deviceScaleFactor: 1 },
  // A window of 1280 × 720 px at a zoom of 200 %.
  enlarged: { width: 640, height: 360, deviceScaleFactor: 2 },
};
interface Look {
  readonly colorScheme: 'light' | 'dark';
  readonly size: keyof typeof SIZES;
}
/**
 * A size changes no colour, and a colour scheme no size: each size is looked at once. The window of the dark look shows
 * every element, some of which a narrow window hides; so does the enlarged light one.
 */
const LOOKS: readonly Look[] = [
  { colorScheme: 'dark', size: 'wide' },
  { colorScheme: 'light', size: 'narrow' },
  { colorScheme: 'light', size: 'enlarged' },
];
const nameOf = ({ colorScheme, size }: Look) => `${colorScheme}-${size}`;

async function picture(page: Page, name: string): Promise<void> {
  mkdirSync(FOLDER as string, { recursive: true });
  // The picture of `page.screenshot` has the size of the tab, not the size that is shown.
  const session = await page.context().newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', { format: 'png' });
  writeFileSync(join(FOLDER as string, `${name}.png`), Buffer.from(data, 'base64'));
}

/** Shows the page in this colour scheme and size. */
async function show(page: Page, { colorScheme, size }: Look) {
  const { width, height, deviceScaleFactor } = SIZES[size];
  await page.emulateMedia({ colorScheme });
  const session = await page.context().newCDPSession(page);
  await session.send('Emulation.setDeviceMetricsOverride', {
    ...{ width, height, deviceScaleFactor },
    mobile: false,
  });
  await page.waitForFunction(
    (wanted) =>
      innerWidth === wanted.width &&
      innerHeight === wanted.height &&
      devicePixelRatio === wanted.deviceScaleFactor &&
      matchMedia(`(prefers-color-scheme: ${wanted.colorScheme})`).matches,
    { ...SIZES[size], colorScheme },
  );
}

const STATES = [
  ...['sign-in', 'wrong-password', 'empty', 'streaming', 'stopped', 'done', 'attached', 'refused'],
  ...['failed-by-the-bot', 'consent', 'waiting', 'signed-out'],
];

/** Brings a page into all its states, one after the other, and calls `look` in each. */
async function walk({ page, relay }: ChatDemo, look: (state: string) => Promise<void>): Promise<void> {
  await look('sign-in');
  await page.locator('#password').fill('wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').filter({ hasText: /\w/ }).waitFor();
  await look('wrong-password');
  await page.locator('#password').fill('demo');
  await signIn(page);
  await look('empty');
  // It begins and then is silent, so that no picture shows a half drawn line.
  await page.getByLabel('Bot').selectOption('demo/slow');
  await say(page, 'What do you think?');
  await page.locator('.text', { hasText: 'Let me think about that.' }).waitFor();
  await look('streaming');
  await page.getByRole('button', { name: 'Stop' }).click();
  await lastAnswer(page, 'stopped');
  await look('stopped');
  await page.getByLabel('Bot').selectOption('demo/echo');
  await say(page, `Hello\nthere, ${LONG_WORD}`);
  await lastAnswer(page, 'done');
  await look('done');
  const file = { name: `${LONG_WORD}.txt`, mimeType: 'text/plain', buffer: Buffer.from('text') };
  await page.locator('#file').setInputFiles(file);
  // The second one is refused by the limit.
  await page.locator('#file').setInputFiles({ ...file, name: 'note.txt' });
  await page.locator('#files [data-state=failed]').waitFor();
  await look('attached');
  await say(page, 'Too much');
  await lastAnswer(page, 'failed');
  await look('refused');
  await page.getByLabel('Bot').selectOption('demo/steps');
  await say(page, 'Count');
  await lastAnswer(page, 'failed');
  await look('failed-by-the-bot');
  await page.getByLabel('Bot').selectOption('demo/tools');
  await say(page, 'What time is it?');
  await page.locator('.consent').waitFor();
  await lastAnswer(page, 'done');
  await look('consent');
  // The answer does not begin while the relay is held.
  process.kill(relay.pid, 'SIGSTOP');
  await say(page, 'Is anybody there?');
  await page.locator('.note', { hasText: '1 s' }).waitFor();
  await look('waiting');
  process.kill(relay.pid, 'SIGCONT');
  await lastAnswer(page, 'failed', 'done');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
  await look('signed-out');
}

describeInChromium('every state of the chat page', () => {
  const seen: { state: string; look: string; faults: string[] }[] = [];
  let complaints: string[];
  // In each state, one page is shown in all looks. This is faster than a page for each look.
  beforeAll(async () => {
    const demo = await openChat(chromium, relay);
    await demo.page.evaluate(AXE);
    await walk(demo, async (state) => {
      for (const look of LOOKS) {
        await show(demo.page, look);
        if (FOLDER) await picture(demo.page, `${STATES.indexOf(state) + 1}-${state}-${nameOf(look)}`);
        seen.push({ state, look: nameOf(look), faults: await faultsOf(demo.page) });
      }
    });
    complaints = demo.complaints;
  }, 180_000);

  test.each(LOOKS)('$colorScheme and $size', (look) => {
    const own = seen.filter((one) => one.look === nameOf(look));
    expect(own.map(({ state }) => state)).toEqual(STATES);
    expect(own.flatMap(({ state, faults }) => faults.map((fault) => `${state}: ${fault}`))).toEqual([]);
    expect(complaints).toEqual([]);
  });
});
