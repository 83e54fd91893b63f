/// <reference lib="dom" />
import { afterAll, beforeAll, expect } from '@jest/globals';
import {
  lastAnswer,
  longMessage,
  openChat,
  say,
  signIn,
  someWords,
  startDemoRelay,
} from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { type RelayProcess, startProcess, stopProcesses } from '../support/process.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { whileAwake } from '../support/while-awake.ts';

/** A relay for all cases that need no settings of their own. It starts together with Chromium. */
let shared: RelayProcess;
beforeAll(() => {
  shared = startDemoRelay();
});
const chromium = oneChromium({ keepsTabs: true });
afterAll(() => stopProcesses());

const SENTENCE = 'Hello, how are you today? It is a fine day here, with a little wind from the sea.';
/** Its answer takes more than two seconds, so that a busy machine draws it in several steps, too. */
const HELLO = `${SENTENCE} ${SENTENCE}`;

/** What the page records for the test: each text of the answer, and when it was shown. */
interface Seen {
  seen: { text: string; at: number }[];
}

describeInChromium('the chat page in Chromium', () => {
  testSideBySide(
    [
      [
        'shows that the sixth of six quick messages waits, and for how long',
        whileAwake(async () => {
          const { page, complaints } = await openChat(chromium, {
            RATE_WINDOW_MS: '3000',
            RATE_MAX_WAIT_MS: '20000',
          });
          await signIn(page);
          await page.evaluate(() => {
            const notes: string[] = [];
            const order: number[] = [];
            Object.assign(globalThis, { notes, order });
            const form = document.querySelector('#composer') as HTMLFormElement;
            const text = document.querySelector('#text') as HTMLTextAreaElement;
            new MutationObserver(() => {
              const answers = Array.from(document.querySelectorAll<HTMLElement>('.answer'));
              const note = answers[5]?.querySelector('.note')?.textContent;
              if (note !== undefined && note !== null && note !== notes.at(-1)) notes.push(note);
              answers.forEach((answer, index) => {
                if (answer.dataset.state === 'streaming' && !order.includes(index)) order.push(index);
              });
            }).observe(document.querySelector('#messages') as Element, {
              subtree: true,
              childList: true,
              attributes: true,
              characterData: true,
            });
            for (let count = 0; count < 6; count++) {
              text.value = `Message ${count} of six that all come at once`;
              form.requestSubmit();
            }
          });
          await page.waitForFunction(
            () => document.querySelectorAll('.answer[data-state=done]').length === 6,
          );
          const [notes, order] = await page.evaluate(() => {
            const all = globalThis as unknown as { notes: string[]; order: number[] };
            return [all.notes, all.order] as const;
          });
          const seconds = notes
            .flatMap((note) => /^Waiting for the answer · (\d) s$/.exec(note)?.[1] ?? [])
            .map(Number);
          expect(seconds).toEqual([...seconds].sort());
          expect(seconds[0]).toBe(0);
          expect(seconds.at(-1)).toBeGreaterThan(1);
          // The countdown ends when the answer has begun.
          expect(notes.slice(-2)).toEqual(['Answering…', '']);
          expect(order.at(-1)).toBe(5);
          expect(complaints).toEqual([]);
        }),
      ],
      [
        'counts down to the next possible try, and copies the request id',
        whileAwake(async () => {
          const { page, relay, profile, complaints } = await openChat(chromium, {
            RATE_LIMIT: '1',
            RATE_WINDOW_MS: '4000',
            RATE_MAX_WAIT_MS: '0',
          });
          await profile.grantPermissions(['clipboard-read', 'clipboard-write']);
          await signIn(page);
          const labels = await page.evaluate(
            () =>
              new Promise<string[]>((resolve) => {
                const form = document.querySelector('#composer') as HTMLFormElement;
                const text = document.querySelector('#text') as HTMLTextAreaElement;
                const seen: string[] = [];
                new MutationObserver(() => {
                  const [first, second] = Array.from(document.querySelectorAll<HTMLElement>('.answer'));
                  // The first message has the slot.
                  if (second === undefined && first?.dataset.state === 'streaming') send('Two');
                  if (second?.dataset.state !== 'failed') return;
                  const label = second.querySelector('.again')?.textContent ?? '';
                  if (label !== seen.at(-1)) seen.push(label);
                  if (label === 'Send again') resolve(seen);
                }).observe(document.querySelector('#messages') as Element, {
                  subtree: true,
                  childList: true,
                  attributes: true,
                  characterData: true,
                });
                const send = (words: string) => {
                  text.value = words;
                  form.requestSubmit();
                };
                send('One');
              }),
          );
          const seconds = labels
            .slice(0, -1)
            .map((label) => Number(/^Send again in (\d) s$/.exec(label)?.[1]));
          expect(seconds).toEqual([...seconds].sort((a, b) => b - a));
          expect(seconds.at(-1)).toBe(1);
          expect(seconds.length).toBeGreaterThan(2);
          const again = page.locator('.answer:nth-of-type(4) .again');
          await page.getByRole('button', { name: 'Copy' }).click();
          await page.getByRole('button', { name: 'Copied' }).waitFor();
          const id = await page.evaluate(() => navigator.clipboard.readText());
          await relay.waitFor(new RegExp(`"requestId":"${id}".*"outcome":"rate_limited"`));
          await again.click();
          await page
            .locator('.answer:nth-of-type(6)[data-state=done]', { hasText: 'You said: Two' })
            .waitFor();
          expect(complaints).toEqual([]);
        }),
      ],
      [
        'says when the relay is gone, and goes on when it is back',
        async () => {
          const { page, relay, url, complaints } = await openChat(chromium, {
            PORT: String(await freePort()),
          });
          await signIn(page);
          await say(page, longMessage(30));
          await someWords(page);
          relay.signal('SIGKILL');
          await lastAnswer(page, 'waiting');
          await page.locator('.answer:last-child', { hasText: 'Connecting again' }).waitFor();
          await page.getByRole('button', { name: 'Stop' }).click();
          await lastAnswer(page, 'stopped');
          await relay.exited;
          await say(page, 'Are you there?');
          await page.locator('.answer:last-child .why', { hasText: 'unreachable' }).waitFor();

          await startProcess({ environment: { PORT: new URL(url).port } }).listening();
          await page.locator('.answer:last-child .again').click();
          // The sessions were in the memory of the relay that is gone.
          await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
          await signIn(page);
          expect(await page.locator('.answer').count()).toBe(3);
          await page.locator('.answer:last-child .again').click();
          await page
            .locator('.answer:last-child[data-state=done]', { hasText: 'You said: Are you there?' })
            .waitFor();
          expect(complaints.filter((one) => !one.includes('net::ERR_'))).toEqual([]);
        },
      ],
      [
        'is signed out together with the other tabs, also during streams; signing in restores all',
        async () => {
          const { page, url, profile, complaints } = await openChat(chromium, shared);
          await signIn(page);
          const other = await chromium.open(url, profile);
          await other.page.locator('body[data-session=in]').waitFor();
          // This tab has no stream that could tell it.
          const third = await chromium.open(url, profile);
          await third.page.locator('body[data-session=in]').waitFor();
          await say(other.page, longMessage(30));
          await someWords(other.page);
          await other.page.locator('#text').fill('A draft');
          await page.getByRole('button', { name: 'Sign out' }).click();
          await other.page.getByRole('heading', { name: 'You are signed out' }).waitFor();
          await third.page.getByRole('heading', { name: 'You are signed out' }).waitFor();
          await lastAnswer(other.page, 'failed');
          expect(await other.page.locator('.answer .why').textContent()).toContain('Signed out.');
          expect(await other.page.locator('#composer-note').textContent()).toContain('You are signed out.');
          // The focus stays in a text that is being written.
          expect(await other.page.evaluate(() => document.activeElement?.id)).toBe('text');
          expect(await page.evaluate(() => document.activeElement?.id)).toBe('username');
          await signIn(page);
          await other.page.locator('body[data-session=in]').waitFor();
          expect(await other.page.locator('#text').inputValue()).toBe('A draft');
          await other.page.locator('#text').press('Enter');
          await other.page.locator('.answer:last-child[data-state=done]', { hasText: 'A draft' }).waitFor();
          expect([...complaints, ...other.complaints, ...third.complaints]).toEqual([]);
        },
      ],
      [
        'shows an answer that appears word by word, and announces it once to a screen reader',
        async () => {
          const { page, complaints } = await openChat(chromium, shared);
          expect(await page.getByLabel('User name').inputValue()).toBe('demo');
          await signIn(page);
          expect(await page.locator('#user').textContent()).toBe('demo');
          await page.evaluate(() => {
            const seen: Seen['seen'] = [];
            let spoken = 0;
            Object.assign(globalThis, { seen, spoken: () => spoken });
            const look = { subtree: true, childList: true, characterData: true };
            new MutationObserver(() => {
              const text = document.querySelector('.answer .text')?.textContent ?? '';
              if (seen.at(-1)?.text !== text) seen.push({ text, at: performance.now() });
            }).observe(document.querySelector('#messages') as Element, look);
            new MutationObserver((changes) => {
              spoken += changes.filter(({ addedNodes }) => addedNodes.length > 0).length;
            }).observe(document.querySelector('#live') as Element, look);
          });
          await say(page, HELLO);
          await lastAnswer(page, 'done');
          const [seen, spoken] = await page.evaluate(() => {
            const all = globalThis as unknown as Seen & { spoken(): number };
            return [all.seen, all.spoken()] as const;
          });
          const words = `You said: ${HELLO}`.split(' ');
          const steps = seen.map(({ text }) => text.split(' ').filter(Boolean).length);
          expect(seen.at(-1)?.text).toBe(words.join(' '));
          // Each text continues the one before. A busy machine may draw two words at once.
          for (const { text } of seen) expect(words.join(' ').startsWith(text)).toBe(true);
          expect(steps).toEqual([...steps].sort((a, b) => a - b));
          expect(new Set(steps).size).toBeGreaterThan(4);
          const first = seen.find(({ text }) => text !== '')?.at ?? 0;
          expect((seen.at(-1)?.at ?? 0) - first).toBeGreaterThan(180);
          expect(spoken).toBe(1);
          expect(await page.locator('#live').textContent()).toContain(`demo/echo: ${words.join(' ')}`);
          expect(complaints).toEqual([]);
        },
      ],
      [
        'can be used with the keyboard alone, also to stop the run at the bot service',
        async () => {
          const { page, relay, complaints } = await openChat(chromium, shared);
          const press = async (...keys: string[]) => {
            for (const key of keys) await page.keyboard.press(key);
          };
          const focused = () => page.evaluate(() => document.activeElement?.id);
          await press('Tab');
          expect(await focused()).toBe('username');
          await press('Tab', 'Enter');
          await page.locator('body[data-session=in]').waitFor();
          expect(await focused()).toBe('text');
          await page.keyboard.type('one');
          await press('Shift+Enter');
          // Each key takes a moment, so most of the long text is inserted at once.
          await page.keyboard.type('word');
          await page.keyboard.insertText(longMessage(20).slice('word'.length));
          await press('Enter');
          await someWords(page);
          expect(await page.locator('.question .text').textContent()).toMatch(/^one\nword word/);
          await press('Tab');
          expect(await focused()).toBe('stop');
          await press('Space');
          await lastAnswer(page, 'stopped');
          // The stream ends by the page or by the bot service, whichever is quicker.
          await relay.waitFor(/"route":"[^"]*message\/suspend","status":200,"outcome":"ok"/);
          expect(await page.locator('.answer .note').textContent()).toBe('You stopped this answer.');
          expect(await page.getByRole('button', { name: 'Stop' }).count()).toBe(0);
          expect(await focused()).toBe('text');
          await press('Shift+Tab');
          expect(await focused()).toBe('sign-out');
          await press('Enter');
          await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
          expect(await focused()).toBe('username');
          expect(complaints).toEqual([]);
        },
      ],
      [
        'notices by itself that the session has run out',
        async () => {
          const { page, url, profile } = await openChat(chromium, shared);
          await page.clock.install();
          await signIn(page);
          const [cookie] = await profile.cookies();
          const headers = { Cookie: `${cookie?.name}=${cookie?.value}` };
          expect((await fetch(`${url}auth/logout`, { method: 'POST', headers })).status).toBe(204);
          expect(await page.locator('body').getAttribute('data-session')).toBe('in');
          await page.clock.fastForward('30:02');
          await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
        },
      ],
    ],
    6,
  );
});
