import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ChatWindow } from '../client/pages/chat-view.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { serveElementPage } from '../support/element-page.ts';
import type { FakeLoadBalancer } from '../support/fake-load-balancer.ts';
import { ROOT } from '../support/sources.ts';

const FOLDER = join(ROOT, 'docs/images');
const MAX_BYTES = 40_000;
/** The pictures of the documents: `PICTURES=write npm run prove -- chat-pictures` makes them anew. */
const PICTURES = [
  { name: 'chat-answer', state: 'done', width: 900, height: 800, colorScheme: 'light' },
  { name: 'chat-list', state: 'chats', width: 900, height: 480, colorScheme: 'light' },
  { name: 'chat-consent', state: 'consent', width: 900, height: 480, colorScheme: 'dark' },
  { name: 'chat-failed-phone', state: 'failed', width: 375, height: 667, colorScheme: 'dark' },
  { name: 'chat-arabic-phone', state: 'arabic', width: 375, height: 667, colorScheme: 'light' },
] as const;

let front: FakeLoadBalancer;
const chromium = oneChromium();
beforeAll(async () => {
  front = await serveElementPage("import '../../../tests/client/pages/chat-view.ts';");
});
afterAll(() => front?.close());

describeInChromium('the pictures of the chat', () => {
  test('are in the documents, and small', async () => {
    if (process.env.PICTURES === 'write') await write();
    const files = PICTURES.map(({ name }) => `${name}.webp`);
    expect(readdirSync(FOLDER).sort()).toEqual([...files].sort());
    const text = readFileSync(join(ROOT, 'docs/front-end.md'), 'utf8');
    expect(files.filter((file) => !text.includes(`](images/${file})`))).toEqual([]);
    expect(files.filter((file) => statSync(join(FOLDER, file)).size > MAX_BYTES)).toEqual([]);
  });
});

async function write(): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  for (const { name, state, width, height, colorScheme } of PICTURES) {
    const options = { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' } as const;
    const profile = await chromium.browser.newContext(options);
    const { page } = await chromium.open(`${front.url}/`, profile);
    await page.waitForFunction('globalThis.show');
    await page.evaluate((state) => (globalThis as ChatWindow).enter(state), state);
    await page.mouse.move(0, 0);
    const session = await profile.newCDPSession(page);
    const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 85 });
    writeFileSync(join(FOLDER, `${name}.webp`), Buffer.from(data, 'base64'));
  }
}
