/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { AxeResults, RunOptions } from 'axe-core';
import { contrast } from '../../src/config/chat-file.ts';
import { chatTab } from '../harness/browser/chat-tab.ts';
import { describeInChromium } from '../harness/browser/chromium.ts';
import { tablesOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { STATES } from './pages/chat-states.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** No style sheet has a rule for a side of the phone, and there is no sound: nothing must be loaded first. */
const AXE_OPTIONS: RunOptions = {
  ...{ resultTypes: ['violations'], preload: false },
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
};
const EMBED = readFileSync(join(ROOT, 'docs/front-end/embed.md'), 'utf8');

const tab = chatTab();
/** What `AXE` adds to the page. */
declare global {
  var axe: { run(root: Document, options: RunOptions): Promise<AxeResults> };
}
const { twoFrames } = tab;
const enter = async (state: string) => {
  await tab.enter(state);
  await twoFrames();
};

describeInChromium('a conversation', () => {
  test.each([320, 1000])(
    'has questions at the end of the line, and answers at its start: %i',
    async (width) => {
      await tab.page.setViewportSize({ width, height: 700 });
      for (const state of ['done', 'arabic']) {
        await enter(state);
        const sides = await tab.page.locator('#chat').evaluate((host) => {
          const log = host.shadowRoot?.querySelector('.messages') as Element;
          const all = log.getBoundingClientRect();
          const isRightToLeft = getComputedStyle(log).direction === 'rtl';
          const inset = Number.parseFloat(getComputedStyle(log.children[0] as Element).paddingInlineEnd);
          const boxes = [log.querySelector('.question .text'), log.querySelector('.answer')];
          const [question, answer] = boxes.map((one) => {
            const box = (one as Element).getBoundingClientRect();
            const gap = one?.matches('.text') ? inset : 0;
            const ends = [Math.round(box.left - all.left - gap), Math.round(all.right - box.right - gap)];
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

describeInChromium('a list in an answer', () => {
  test.each([
    ['en', 'قائمة'],
    ['ar', 'A list'],
  ])(
    'has its numbers in the answer, also in another direction than that of the page: %s',
    async (lang, item) => {
      await tab.chat.evaluate(
        ({ show, set, answer }, [lang, item]) => {
          show({ lang });
          set({ messages: [answer({ text: `1. ${item}\n2. ${item}` })] });
        },
        [lang, item] as const,
      );
      const room = await tab.page
        .locator('.answer-text li')
        .first()
        .evaluate((one) => {
          const [text, list] = [one, one.parentElement as Element].map((each) =>
            each.getBoundingClientRect(),
          );
          if (!text || !list) return 0;
          return getComputedStyle(one).direction === 'rtl' ? list.right - text.right : text.left - list.left;
        });
      expect(room).toBeGreaterThan(20);
    },
  );
});

describeInChromium('the header of a narrow window', () => {
  test('has its buttons side by side, each in one line, where several bots and chats can be chosen', async () => {
    await tab.page.setViewportSize({ width: 320, height: 568 });
    await enter('chats');
    const middles = await tab.page
      .locator('header > :is(select, details, button):visible')
      .evaluateAll((all) =>
        all.map((one) => {
          const { top, bottom } = (one.querySelector('summary') ?? one).getBoundingClientRect();
          return Math.round((top + bottom) / 2);
        }),
      );
    expect(middles).toEqual(Array(4).fill(middles[0]));
  });
});

describeInChromium('the button that signs in', () => {
  test.each(['light', 'dark'] as const)('can be read while it waits: %s', async (colorScheme) => {
    await tab.page.emulateMedia({ colorScheme });
    await enter('sign-in-waiting');
    const [text, behind, accent] = await tab.page
      .getByRole('button', { name: 'Try again in' })
      .evaluate((one) => {
        const { color, backgroundColor } = getComputedStyle(one);
        one.removeAttribute('aria-disabled');
        return [color, backgroundColor, getComputedStyle(one).backgroundColor].map(
          (each) =>
            `#${[...each.matchAll(/\d+/g)].map(([part]) => Number(part).toString(16).padStart(2, '0')).join('')}`,
        );
      });
    await tab.page.emulateMedia({ colorScheme: null });
    expect(behind).not.toBe(accent);
    expect(contrast(`${text}`, `${behind}`)).toBeGreaterThan(4.5);
  });
});

describeInChromium('a question that waits', () => {
  test('is no wider than its own text, however long the note below it is', async () => {
    await tab.page.setViewportSize({ width: 1000, height: 700 });
    await enter('reconnecting');
    const [text = 0, note = 0] = await tab.page
      .locator('.question[data-state=queued] :is(.text, .note)')
      .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().width));
    expect(note).toBeGreaterThan(0);
    expect(text).toBeLessThan(note / 2);
  });
});

/** Each variable of the document, without `--bot-chat-`: the state, the place and the property of which it is the colour. */
const COLOURS: Readonly<Record<string, readonly [state: string, selector: string, property: string]>> = {
  accent: ['sign-in', '[part~=sign-in][type=submit]', 'background-color'],
  'on-accent': ['sign-in', '[part~=sign-in][type=submit]', 'color'],
  background: ['empty', ':host', 'background-color'],
  surface: ['empty', '.box', 'background-color'],
  text: ['done', '.answer-text', 'color'],
  muted: ['done', '.head', 'color'],
  own: ['done', '.question .text', 'background-color'],
  error: ['composer-error', '.why', 'color'],
};

describeInChromium('a colour that the page sets', () => {
  afterAll(() => tab.page.emulateMedia({ colorScheme: null }));

  test('is one of those in the document', () => {
    const [line = ''] = /^\*\*Colours and the font\*\*.*$/m.exec(EMBED) ?? [];
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
        await tab.page.emulateMedia({ colorScheme });
        found.push(
          await tab.page.locator('#chat').evaluate(
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
    const font = await tab.page.locator('#chat').evaluate((host: HTMLElement) => {
      host.style.setProperty('--bot-chat-font', 'cursive');
      return getComputedStyle(host.shadowRoot?.querySelector('.answer-text p') as Element).fontFamily;
    });
    expect(font).toBe('cursive');
  });
});

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
  { name: 'on a phone that lies on its side, enlarged to 200 %', width: 568, height: 320, scale: 2 },
  { name: 'forced colours', width: 1000, height: 700, forcedColors: 'active' },
];

async function look({ width, height, scale = 1, colorScheme = 'light', forcedColors = 'none' }: Look) {
  await tab.page.emulateMedia({ colorScheme, forcedColors, reducedMotion: 'reduce' });
  const session = await tab.page.context().newCDPSession(tab.page);
  const metrics = { width, height, deviceScaleFactor: scale, mobile: false };
  await session.send('Emulation.setDeviceMetricsOverride', metrics);
  await tab.page.waitForFunction((wanted) => innerWidth === wanted, width);
}

/** The names of all parts in a document's table of them, in which all words in code are names. */
const PARTS = tablesOf(EMBED)
  .filter(({ header }) => header[0] === 'part')
  .flatMap(({ rows }) => rows.flatMap(([names = '']) => [...names.matchAll(/`([a-z-]+)`/g)]))
  .map(([, name]) => name);

describeInChromium('every state of the chat', () => {
  beforeAll(() => tab.page.evaluate(AXE));

  test.each(LOOKS)(
    'is laid out and accessible, and has the parts that the document names: $name',
    async (one) => {
      await look(one);
      const { faults, parts } = await tab.chat.evaluate(
        async ({ enter, twoFrames, layoutFaults, axe }, [states, options]) => {
          const faults: string[] = [];
          const parts = new Set<string>();
          for (const state of states) {
            await enter(state);
            // The log scrolls to its end in the frame after it has grown; then no text lies elsewhere than axe-core looks.
            await twoFrames();
            for (const part of document.querySelector('#chat')?.shadowRoot?.querySelectorAll('[part]') ?? [])
              for (const name of part.part) parts.add(name);
            const { violations } = await axe.run(document, options);
            const found = violations.flatMap(({ id, nodes }) =>
              nodes.map((one) => `${id}: ${one.html} ${one.failureSummary}`),
            );
            faults.push(...[...layoutFaults(), ...found].map((fault) => `${state}: ${fault}`));
          }
          return { faults, parts: [...parts] };
        },
        [Object.keys(STATES), AXE_OPTIONS] as const,
      );
      expect(faults).toEqual([]);
      expect(parts.sort()).toEqual([...new Set(PARTS)].sort());
    },
  );
});
