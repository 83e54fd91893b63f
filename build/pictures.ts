/** Takes the pictures of the chat in the documents, in Chromium: `npm run pictures`. */
import { existsSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import type { ChatWindow } from '../tests/client/pages/chat-view.ts';
import { serveElementPage } from '../tests/harness/browser/element-page.ts';

/** Each shows a state of tests/client/pages/chat-states.ts. Sizes in px. */
const PICTURES = [
  { name: 'chat-answer', state: 'done', width: 1100, height: 760, colorScheme: 'light' },
  { name: 'chat-answer-dark', state: 'done', width: 1100, height: 760, colorScheme: 'dark' },
  { name: 'chat-list', state: 'chats', width: 1100, height: 560, colorScheme: 'light' },
  { name: 'chat-consent', state: 'consent', width: 900, height: 480, colorScheme: 'dark' },
  { name: 'chat-failed-phone', state: 'failed', width: 375, height: 667, colorScheme: 'dark' },
  { name: 'chat-arabic-phone', state: 'arabic', width: 375, height: 667, colorScheme: 'light' },
] as const;

const program = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find((path) => existsSync(path));
if (!program) throw new Error('This needs Chromium: apt-get install chromium-headless-shell');
const front = await serveElementPage("import '../../../tests/client/pages/chat-view.ts';");
const browser = await chromium.launch({ executablePath: program, args: ['--no-sandbox'] });
for (const { name, state, width, height, colorScheme } of PICTURES) {
  const context = await browser.newContext({
    ...{ viewport: { width, height }, colorScheme, reducedMotion: 'reduce' },
  });
  const page = await context.newPage();
  await page.goto(`${front.url}/`);
  await page.waitForFunction('globalThis.show');
  await page.evaluate((state) => (globalThis as ChatWindow).enter(state), state);
  await page.mouse.move(0, 0);
  await page.waitForTimeout(500);
  const session = await context.newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 85 });
  const file = fileURLToPath(new URL(`../docs/images/${name}.webp`, import.meta.url));
  writeFileSync(file, Buffer.from(data, 'base64'));
  await context.close();
}
await browser.close();
await front.close();
