/** Takes the pictures of the chat in the documents, in Chromium: `npm run pictures`. */
import { existsSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import type { ChatWindow } from '../tests/client/pages/chat-view.ts';
import { serveElementPage } from '../tests/harness/browser/element-page.ts';

/** Each shows a state of tests/client/pages/chat-states.ts, or the conversation below. Sizes in px. */
const PICTURES = [
  { name: 'chat-answer', state: 'parcel', width: 1100, height: 700, colorScheme: 'light' },
  { name: 'chat-answer-dark', state: 'parcel', width: 1100, height: 700, colorScheme: 'dark' },
  { name: 'chat-list', state: 'chats', width: 1100, height: 560, colorScheme: 'light' },
  { name: 'chat-consent', state: 'consent', width: 900, height: 480, colorScheme: 'dark' },
  { name: 'chat-failed-phone', state: 'failed', width: 375, height: 667, colorScheme: 'dark' },
  { name: 'chat-parts', state: 'chats', width: 1100, height: 620, colorScheme: 'light' },
  { name: 'chat-arabic-phone', state: 'arabic', width: 375, height: 667, colorScheme: 'light' },
] as const;

/** Shows a conversation as a shop would have it, beside a list of chats. It runs in the page. */
function showParcel(): void {
  const { show, set, question, answer } = globalThis as ChatWindow;
  const titles = [
    'Where is my parcel?',
    'Return of the blue chair',
    'An invoice for May',
    'Opening hours in Ghent',
  ];
  show({ chats: titles.map((title, at) => ({ id: at === 0 ? 'c' : `${at}`, title, at: Date.now() })) });
  const text = [
    'It left **Hamburg** this morning and comes to you tomorrow.',
    '| day | place |\n|---|---|\n| Monday | packed in Leipzig |\n| Tuesday | on its way from Hamburg |',
    'Your program can ask for it, too:',
    "```ts\nconst parcel = await track('JD-2048'); // never paid twice\nconsole.log(parcel.place);\n```",
  ].join('\n\n');
  set({ messages: [question('Where is my parcel?'), answer({ text })] });
}

/** The parts that the picture `chat-parts` names. */
const PARTS = [
  ...['sidebar', 'chat-list', 'header', 'log', 'avatar', 'question', 'answer', 'composer', 'box'],
  ...['new-chat', 'account', 'code', 'code-block', 'link', 'thumb', 'attach', 'input', 'send'],
];

/** Draws a frame and a name for the first of each of these parts that is in sight. It runs in the page. */
function nameParts(names: readonly string[]): void {
  const host = document.querySelector('#chat');
  for (const name of names) {
    const found = [...(host?.shadowRoot?.querySelectorAll(`[part~=${name}]`) ?? [])];
    const box = found
      .map((part) => part.getBoundingClientRect())
      .find(({ width, top, bottom }) => width > 0 && top >= 0 && bottom <= innerHeight);
    if (!box) continue;
    const frame = document.createElement('div');
    frame.style.cssText = `position: fixed; left: ${box.left}px; top: ${box.top}px; width: ${box.width}px; height: ${box.height}px; outline: 1px solid #c2185b; outline-offset: -1px`;
    const label = document.createElement('span');
    label.textContent = name;
    // In a large part at its upper edge, else below.
    const place = box.height > 50 ? 'top: 0; right: 50%' : 'top: 100%; left: 0';
    label.style.cssText = `position: absolute; ${place}; padding: 1px 3px; font: 11px/1.2 monospace; color: #fff; background: #c2185b; white-space: nowrap`;
    frame.append(label);
    document.body.append(frame);
  }
}

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
  if (state === 'parcel') await page.evaluate(showParcel);
  else await page.evaluate((state) => (globalThis as ChatWindow).enter(state), state);
  await page.mouse.move(0, 0);
  await page.waitForTimeout(500);
  if (name === 'chat-parts') await page.evaluate(nameParts, PARTS);
  const session = await context.newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 85 });
  const file = fileURLToPath(new URL(`../docs/images/${name}.webp`, import.meta.url));
  writeFileSync(file, Buffer.from(data, 'base64'));
  await context.close();
}
await browser.close();
await front.close();
