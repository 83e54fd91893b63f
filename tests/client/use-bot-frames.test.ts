import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect } from '@jest/globals';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactPage,
  type ReactVersion,
  sees,
  servePage,
  signInBy,
  startReactPage,
} from '../harness/browser/react-page.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { eventOf } from '../harness/service/bot-runs.ts';

/** An answer that the page makes itself. */
const OWN_ANSWER = eventOf({ messageComplete: { message: { text: 'By the page.' } } });
const words = (from: number, count: number) => Array.from({ length: count }, (_, n) => `${from + n} `);

/** A tab of its own with a mounted chat, signed in. */
interface Chat {
  readonly stage: ReactPage;
  run<T = unknown>(code: string): Promise<T>;
  shows(selector: string, text: string): Promise<void>;
  say(text: string): Promise<unknown>;
}

async function rendersOncePerFrame({ stage, run, shows, say }: Chat): Promise<void> {
  await say('Count');
  const bot = await stage.run('Count');
  bot.begin();
  await shows('.status', 'streaming');
  await run('test.renders.length = 0');
  let text = '';
  for (let from = 0; from < 2000; from += 100) {
    // Half of the words arrive in one piece, and half in a piece each.
    bot.say(...words(from, 50));
    for (const word of words(from + 50, 50)) bot.say(word);
    text += words(from, 100).join('');
    // Each burst is rendered before the next one.
    await shows('.assistant', text);
  }
  const renders = await run<number[]>('test.renders');
  expect(renders.length).toBeGreaterThanOrEqual(20);
  const twice = renders.filter((frame, n) => frame === renders[n - 1]);
  // Frames that took longer than the longest wait do not count.
  const long = await run<number[]>(
    'test.frames.flatMap((at, n) => (test.frames[n + 1] - at > 900 ? [n + 1] : []))',
  );
  expect(twice.filter((frame) => !long.includes(frame))).toEqual([]);
  bot.finish();
  await shows('.assistant[data-state=done]', text);
}

async function rendersWithoutFrames({ stage, run, say }: Chat): Promise<void> {
  await run('window.requestAnimationFrame = () => 1');
  await say('Hello');
  const { begin, say: bot, finish } = await stage.run('Hello');
  begin();
  bot('You');
  // Polled from outside, since the page's own waiting uses frames.
  const text = () => run<string>("document.querySelector('.assistant')?.textContent");
  await until(async () => (await text()) === 'You', 20);
  finish();
  const status = () => run<string>("document.querySelector('.status')?.textContent");
  await until(async () => (await status()) === 'ready', 20);
}

async function rendersOnlyTheChange({ stage, run, shows, say }: Chat): Promise<void> {
  const past = 500;
  await run(`test.mountWithOwnAnswers(${JSON.stringify(OWN_ANSWER)})`);
  await shows('.session', 'ada');
  await run(`(async () => { for (let n = 0; n < ${past}; n++) await test.bots.chat.send('own ' + n); })()`);
  await shows(`li:nth-child(${2 * past})[data-state=done]`, 'By the page.');
  await shows('.status', 'ready');
  await say('Go on');
  const bot = await stage.run('Go on');
  bot.begin();
  await shows('.status', 'streaming');
  await run('test.rows.length = 0; test.before = test.bots.chat.messages');
  bot.say(...words(0, 100));
  await shows('.assistant:last-child', words(0, 100).join(''));
  bot.say(...words(100, 100));
  bot.finish();
  await shows('.assistant:last-child[data-state=done]', words(0, 200).join(''));
  const last = await run('test.bots.chat.messages.at(-1).id');
  expect(await run('[...new Set(test.rows)]')).toEqual([last]);
  const same = 'test.bots.chat.messages.filter((message, n) => message === test.before[n]).length';
  expect(await run(same)).toBe(2 * past + 1);
}

const CASES = [
  ['renders at most once per frame, however many words arrive', rendersOncePerFrame],
  ['also renders without frames, as in a hidden tab', rendersWithoutFrames],
  ['renders only the message that changes, however long the conversation is', rendersOnlyTheChange],
] as const;

const document = readFileSync(new URL('../../docs/front-end/react.md', import.meta.url), 'utf8');
const [, snippet = ''] = document.match(/<!-- snippet: react -->\n```tsx\n([\s\S]*?)```/) ?? [];
const MOUNT = `
import { createRoot } from 'react-dom/client';
createRoot(document.getElementById('root')).render(<App />);
`;
/** Its answer takes more than three seconds, so that a busy machine draws it in several steps, too. */
const HELLO = 'Hello to all of you, and to all the others, who are not here today';
/** Records every text of the first answer. */
const WATCH = `
window.texts = [];
new MutationObserver(() => {
  const text = document.querySelector('li[data-from=assistant]')?.textContent ?? '';
  if (text !== (texts.at(-1) ?? '')) texts.push(text);
}).observe(document.body, { subtree: true, childList: true, characterData: true });
`;

describeInChromium('useBot in a page', () => {
  const chromium = oneChromium({ keepsTabs: true });

  describe('what useBot draws', () => {
    const stages = new Map<ReactVersion, ReactPage>();
    beforeAll(async () => {
      for (const react of REACT_VERSIONS)
        stages.set(
          react,
          await startReactPage(chromium, await bundle('tests/client/pages/chat.jsx', { react })),
        );
    });
    afterAll(async () => {
      for (const stage of stages.values()) await stage.close();
    });

    async function inChat(react: ReactVersion, use: (chat: Chat) => Promise<void>): Promise<void> {
      const stage = stages.get(react) as ReactPage;
      const { page, complaints } = await stage.open();
      const run = <T = unknown>(code: string) => page.evaluate(code) as Promise<T>;
      const shows = (selector: string, text: string) => sees(page, `#chat ${selector}`, text);
      await run('test.mount()');
      await shows('.session', 'nobody');
      await signInBy(page);
      const say = (text: string) => run(`void test.bots.chat.send(${JSON.stringify(text)})`);
      await use({ stage, run, shows, say });
      await page.context().close();
      expect(complaints).toEqual([]);
    }

    testSideBySide(
      CASES.flatMap(([title, use]) =>
        REACT_VERSIONS.map((react) => [`${title}, with React ${react}`, () => inChat(react, use)] as const),
      ),
    );
  });

  describe('the snippet with React', () => {
    let botService: BotService;
    let relay: TestRelay;
    beforeAll(async () => {
      botService = await startBotService({ keys: [CANARY.key], speed: { wordMs: 200 } });
      relay = await startRelay(botService.url, { BOTS: 'demo/echo' });
    });
    afterAll(async () => {
      await relay.close();
      await botService.close();
    });

    async function talk(react: ReactVersion): Promise<void> {
      const front = await servePage(await bundle({ text: snippet + MOUNT }, { react }), relay);
      try {
        const { page, complaints } = await chromium.open(`${front.url}/`);
        const signIn = async (password: string) => {
          await page.getByLabel('Name').fill(USER.name);
          await page.getByLabel('Password').fill(password);
          await page.getByRole('button', { name: 'Sign in' }).click();
        };
        await signIn('wrong');
        await page.getByRole('alert').filter({ hasText: 'Request: ' }).waitFor();
        await signIn(USER.password);
        await page.evaluate(WATCH);
        await page.getByLabel('Message').fill(HELLO);
        await page.getByRole('button', { name: 'Send' }).click();
        await sees(page, 'li:nth-child(2)[data-state=done]', `You said: ${HELLO}`);
        const texts = await page.evaluate<string[]>('texts');
        expect(texts.length).toBeGreaterThan(3);
        texts.forEach((text, n) => void expect(text.startsWith(texts[n - 1] ?? '')).toBe(true));
        await page.getByLabel('Message').fill(Array.from({ length: 100 }, () => 'long').join(' '));
        await page.getByRole('button', { name: 'Send' }).click();
        await page.locator('li:nth-child(4)[data-state=streaming]').waitFor();
        await page.getByRole('button', { name: 'Stop' }).click();
        await page.locator('li:nth-child(4)[data-state=stopped]').waitFor();
        await page.getByRole('button', { name: 'Sign out ada' }).click();
        await page.getByRole('button', { name: 'Sign in' }).waitFor();
        expect(complaints).toEqual([]);
      } finally {
        await front.close();
      }
    }

    testSideBySide(
      REACT_VERSIONS.map((react) => [
        `signs in, shows the answer as it arrives and signs out with React ${react}`,
        () => talk(react),
      ]),
    );
  });
});
