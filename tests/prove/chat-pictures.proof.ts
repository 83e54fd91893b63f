/// <reference lib="dom" />
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import type { ChatWindow } from '../client/pages/chat-view.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { serveElementPage } from '../harness/browser/element-page.ts';
import { ROOT } from '../harness/documents/sources.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';

const FOLDER = join(ROOT, 'docs/images');
const MAX_BYTES = 40_000;
/** In px. */
const SQUARE = 40;
/**
 * On one machine it is at most 0.2 and 11; with one of three other fonts, as on another machine, 1.3 and 21. In one of
 * the pictures at least, it is 3.2 if the light background is 6 darker, and 26 or more with another colour of a button,
 * a bubble, the text or an error. Small texts and lines in another colour do not show.
 */
const MOST = { mean: 1.9, most: 24 };
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
    const inFolder = readdirSync(FOLDER).filter((file) => file.startsWith('chat-'));
    expect(inFolder.sort()).toEqual([...files].sort());
    const text = readFileSync(join(ROOT, 'docs/front-end.md'), 'utf8');
    expect(files.filter((file) => !text.includes(`](images/${file})`))).toEqual([]);
    expect(files.filter((file) => statSync(join(FOLDER, file)).size > MAX_BYTES)).toEqual([]);
  });

  test.each(PICTURES)('show it as it looks now: $name', async (picture) => {
    const { data, page } = await taken(picture);
    const kept = readFileSync(join(FOLDER, `${picture.name}.webp`)).toString('base64');
    const { mean, most } = await difference(page, [data, kept]);

    expect(mean).toBeLessThan(MOST.mean);
    expect(most).toBeLessThan(MOST.most);
  });
});

async function write(): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  for (const picture of PICTURES) {
    const { data, page } = await taken(picture);
    writeFileSync(join(FOLDER, `${picture.name}.webp`), Buffer.from(data, 'base64'));
    await page.context().close();
  }
}

/** The picture as the chat looks now, as base64, and the page that shows it. */
async function taken({ state, width, height, colorScheme }: (typeof PICTURES)[number]) {
  const options = { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' } as const;
  const profile = await chromium.browser.newContext(options);
  const { page } = await chromium.open(`${front.url}/`, profile);
  await page.waitForFunction('globalThis.show');
  await page.evaluate((state) => (globalThis as ChatWindow).enter(state), state);
  await page.mouse.move(0, 0);
  await page.evaluate(
    () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
  );
  const session = await profile.newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 85 });
  return { data, page };
}

/**
 * How much two pictures differ, in squares of `SQUARE` px, each as its mean colour: on average, and in the square that
 * differs most. Of 255. The shapes of letters hardly count.
 */
function difference(page: Page, pictures: readonly string[]): Promise<{ mean: number; most: number }> {
  return page.evaluate(
    async ({ pictures, square }) => {
      const [one, other] = await Promise.all(
        pictures.map(async (base64) => {
          const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
          const picture = await createImageBitmap(new Blob([bytes], { type: 'image/webp' }));
          const { width, height } = picture;
          const canvas = new OffscreenCanvas(width, height).getContext(
            '2d',
          ) as OffscreenCanvasRenderingContext2D;
          canvas.drawImage(picture, 0, 0);
          const { data } = canvas.getImageData(0, 0, width, height);
          const columns = Math.ceil(width / square);
          const sums = new Float64Array(columns * Math.ceil(height / square) * 3);
          for (let at = 0; at < width * height; at += 1) {
            const row = Math.floor(at / width / square);
            const column = Math.floor((at % width) / square);
            for (let colour = 0; colour < 3; colour += 1) {
              const sum = (row * columns + column) * 3 + colour;
              sums[sum] = Number(sums[sum]) + Number(data[at * 4 + colour]) / square ** 2;
            }
          }
          return sums;
        }),
      );
      if (!one || one.length !== other?.length) return { mean: 255, most: 255 };
      const all = Array.from(one, (colour, at) => Math.abs(colour - Number(other[at])));
      return { mean: all.reduce((sum, each) => sum + each) / all.length, most: Math.max(...all) };
    },
    { pictures, square: SQUARE },
  );
}
