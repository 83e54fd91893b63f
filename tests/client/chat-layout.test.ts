/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { serveElementPage } from '../harness/browser/element-page.ts';
import { layoutFaults } from '../harness/browser/layout-faults.ts';
import { ROOT } from '../harness/documents/sources.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { STATES } from './pages/chat-states.ts';
import type { ChatWindow } from './pages/chat-view.ts';

let front: FakeLoadBalancer;
let page: Page;
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  front = await serveElementPage("import '../../../tests/client/pages/chat-view.ts';");
  ({ page } = await chromium.open(`${front.url}/`));
  await page.waitForFunction('globalThis.show');
});
afterAll(() => front?.close());

const enter = async (state: string) => {
  await page.evaluate((name) => (globalThis as ChatWindow).enter(name), state);
  await page.evaluate(
    () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
  );
};

describeInChromium('each state of the chat', () => {
  test.each([
    [320, 568],
    [375, 667],
    [568, 320],
    [1000, 700],
  ])('shows all its parts side by side and in the window: %i × %i', async (width, height) => {
    await page.setViewportSize({ width, height });
    const faults: string[] = [];
    for (const name of Object.keys(STATES)) {
      await enter(name);
      faults.push(...(await page.evaluate(layoutFaults)).map((fault) => `${name}: ${fault}`));
    }
    expect(faults).toEqual([]);
  });

  test.each([320, 1000])(
    'has questions at the end of the line, and answers at its start: %i',
    async (width) => {
      await page.setViewportSize({ width, height: 700 });
      for (const state of ['done', 'arabic']) {
        await enter(state);
        const sides = await page.locator('#chat').evaluate((host) => {
          const log = host.shadowRoot?.querySelector('.messages') as Element;
          const all = log.getBoundingClientRect();
          const isRightToLeft = getComputedStyle(log).direction === 'rtl';
          const [question, answer] = [...log.children].map((row) => {
            const box = row.getBoundingClientRect();
            const ends = [Math.round(box.left - all.left), Math.round(all.right - box.right)];
            return isRightToLeft ? ends.reverse() : ends;
          });
          return { isRightToLeft, question, answer };
        });
        expect(sides).toEqual({
          isRightToLeft: state === 'arabic',
          question: [expect.any(Number), 0],
          answer: [0, 0],
        });
        expect(sides.question?.[0]).toBeGreaterThan(0.14 * width - 30);
      }
    },
  );
});

describeInChromium('the header of a narrow window', () => {
  test('has its buttons side by side, each in one line, where several bots and chats can be chosen', async () => {
    await page.setViewportSize({ width: 320, height: 568 });
    await enter('chats');
    const middles = await page.locator('header > :is(select, details, button):visible').evaluateAll((all) =>
      all.map((one) => {
        const { top, bottom } = (one.querySelector('summary') ?? one).getBoundingClientRect();
        return Math.round((top + bottom) / 2);
      }),
    );
    expect(middles).toEqual(Array(4).fill(middles[0]));
  });
});

describeInChromium('a question that waits', () => {
  test('is no wider than its own text, however long the note below it is', async () => {
    await page.setViewportSize({ width: 1000, height: 700 });
    await enter('reconnecting');
    const [text = 0, note = 0] = await page
      .locator('.question[data-state=queued] :is(.text, .note)')
      .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().width));
    expect(note).toBeGreaterThan(0);
    expect(text).toBeLessThan(note / 2);
  });
});

/** Each variable of the document, without `--bot-chat-`: the state, the place and the property of which it is the colour. */
const COLOURS: Readonly<Record<string, readonly [state: string, selector: string, property: string]>> = {
  accent: ['empty', '[part~=send]', 'background-color'],
  'on-accent': ['empty', '[part~=send]', 'color'],
  background: ['empty', ':host', 'background-color'],
  surface: ['empty', 'textarea', 'background-color'],
  text: ['done', '.answer-text', 'color'],
  muted: ['done', '.head', 'color'],
  own: ['done', '.question .text', 'background-color'],
  error: ['composer-error', '.why', 'color'],
};

describeInChromium('a colour that the page sets', () => {
  afterAll(() => page.emulateMedia({ colorScheme: null }));

  test('is one of those in the document', () => {
    const text = readFileSync(join(ROOT, 'docs/front-end.md'), 'utf8');
    const [line = ''] = /^\*\*Colours and the font\*\*.*$/m.exec(text) ?? [];
    const named = [...line.matchAll(/--bot-chat-([a-z-]+)/g)].map(([, name]) => name);
    expect(named.sort()).toEqual([...Object.keys(COLOURS), 'font'].sort());
  });

  test.each(Object.entries(COLOURS))(
    'is that of its place, in its colour scheme alone: %s',
    async (name, place) => {
      const [state, selector, property] = place;
      await enter(state);
      const found: string[] = [];
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        found.push(
          await page.locator('#chat').evaluate(
            (host: HTMLElement, [name, selector, property]) => {
              host.style.setProperty(`--bot-chat-${name}`, 'rgb(1, 2, 3)');
              host.style.setProperty(`--bot-chat-${name}-dark`, 'rgb(4, 5, 6)');
              const seen = [...(host.shadowRoot?.querySelectorAll(selector) ?? [])];
              const one = selector === ':host' ? host : seen.find((each) => each.checkVisibility());
              return getComputedStyle(one as Element).getPropertyValue(property);
            },
            [name, selector, property] as const,
          ),
        );
      }
      expect(found).toEqual(['rgb(1, 2, 3)', 'rgb(4, 5, 6)']);
    },
  );

  test('leaves the font to its own variable', async () => {
    await enter('done');
    const font = await page.locator('#chat').evaluate((host: HTMLElement) => {
      host.style.setProperty('--bot-chat-font', 'cursive');
      return getComputedStyle(host.shadowRoot?.querySelector('.answer-text p') as Element).fontFamily;
    });
    expect(font).toBe('cursive');
  });
});
