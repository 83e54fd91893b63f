/// <reference lib="dom" />
import { mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, expect, test } from '@jest/globals';
import type { AxeResults, RunOptions } from 'axe-core';
import type { Page } from 'playwright-core';
import { lastAnswer, openChat, say, signIn } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { stopProcesses } from '../support/process.ts';

/** Where the pictures of every state go. */
const FOLDER = process.env.SCREENSHOTS ?? mkdtempSync(join(tmpdir(), 'bot-relay-chat-page-'));
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const LONG_WORD = 'Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft';

beforeAll(() => {
  mkdirSync(FOLDER, { recursive: true });
  process.stdout.write(`Screenshots of the chat page: ${FOLDER}\n`);
});
const chromium = oneChromium();
afterEach(() => stopProcesses());

/** What is wrong with the page for some of its users: by axe-core's rules, or because it has to be scrolled sideways. */
async function faultsOf(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => {
    const { axe } = globalThis as unknown as {
      axe: { run(root: Document, options: RunOptions): Promise<AxeResults> };
    };
    return axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    });
  });
  const tooWide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  // Where there is room for it, the place to write at is always there.
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
  wide: { viewport: { width: 1000, height: 700 } },
  narrow: { viewport: { width: 320, height: 568 } },
  // A window of 1280 × 720 enlarged to 200 %.
  enlarged: { viewport: { width: 640, height: 360 }, deviceScaleFactor: 2 },
};

describeInChromium('every state of the chat page', () => {
  const looks = (['light', 'dark'] as const).flatMap((colorScheme) =>
    (['wide', 'narrow', 'enlarged'] as const).map((size) => ({ colorScheme, size })),
  );
  test.each(looks)('$colorScheme and $size', async ({ colorScheme, size }) => {
    const environment = {
      BOTS: 'demo/*',
      RATE_LIMIT: '1',
      RATE_WINDOW_MS: '60000',
      RATE_MAX_WAIT_MS: '0',
      MAX_STREAMS_PER_USER: '4',
    };
    const one = await openChat(chromium, environment, { colorScheme, ...SIZES[size] });
    const { page, relay, complaints } = one;
    const faults: string[] = [];
    let number = 0;
    const look = async (state: string) => {
      number += 1;
      await page.screenshot({
        path: join(FOLDER, `${String(number).padStart(2, '0')}-${state}-${colorScheme}-${size}.png`),
      });
      faults.push(...(await faultsOf(page)).map((fault) => `${state}: ${fault}`));
    };
    await look('sign-in');
    await page.locator('#password').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').filter({ hasText: /\w/ }).waitFor();
    await look('wrong-password');
    await page.locator('#password').fill('demo');
    await signIn(page);
    await look('empty');
    // It begins, and then it is silent: a picture of it shows no line half drawn.
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
    await say(page, 'Too much');
    await lastAnswer(page, 'failed');
    await look('refused');
    await page.getByLabel('Bot').selectOption('demo/steps');
    await say(page, 'Count');
    await lastAnswer(page, 'failed');
    await look('failed-by-the-bot');
    // An answer that nobody begins, as long as the relay is held.
    process.kill(relay.pid, 'SIGSTOP');
    await say(page, 'Is anybody there?');
    await page.locator('.note', { hasText: '1 s' }).waitFor();
    await look('waiting');
    process.kill(relay.pid, 'SIGCONT');
    await lastAnswer(page, 'failed', 'done');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    await look('signed-out');
    expect(faults).toEqual([]);
    expect(complaints).toEqual([]);
  });
});
