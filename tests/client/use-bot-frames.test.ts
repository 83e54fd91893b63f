import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { eventOf } from '../support/bot-runs.ts';
import { describeInChromium, oneChromium, type Tab } from '../support/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactStage,
  sees,
  signInBy,
  startReactStage,
} from '../support/react-stage.ts';

/** An answer for which there is no need to ask the bot. */
const OWN_ANSWER = eventOf({ messageComplete: { message: { text: 'By the page.' } } });
const words = (from: number, count: number) => Array.from({ length: count }, (_, n) => `${from + n} `);

describeInChromium('what useBot draws', () => {
  const chromium = oneChromium();

  describe.each(REACT_VERSIONS)('with React %s', (react) => {
    let script: string;
    let stage: ReactStage;
    let tab: Tab;
    beforeAll(async () => {
      script = await bundle('tests/client/pages/chat.jsx', { react });
    });
    beforeEach(async () => {
      stage = await startReactStage(chromium, script);
      tab = await stage.open();
      await run('test.mount()');
      await shows('.session', 'nobody');
      await signInBy(tab.page);
    });
    afterEach(async () => {
      await tab.page.context().close();
      await stage.close();
      expect(tab.complaints).toEqual([]);
    });
    const run = <T = unknown>(code: string) => tab.page.evaluate(code) as Promise<T>;
    const shows = (selector: string, text: string) => sees(tab.page, `#chat ${selector}`, text);
    const say = (text: string) => run(`void test.bots.chat.send(${JSON.stringify(text)})`);

    test('is drawn at most once per frame, however many words come', async () => {
      await say('Count');
      const bot = await stage.run('Count');
      bot.begin();
      await shows('.status', 'streaming');
      await run('test.renders.length = 0');
      let text = '';
      for (let from = 0; from < 2000; from += 100) {
        // Half of them in one piece, and half in pieces of their own.
        bot.say(...words(from, 50));
        for (const word of words(from + 50, 50)) bot.say(word);
        text += words(from, 100).join('');
        // Each burst is seen before the next one.
        await shows('.bot', text);
      }
      const renders = await run<number[]>('test.renders');
      expect(renders.length).toBeGreaterThanOrEqual(20);
      const twice = renders.filter((frame, n) => frame === renders[n - 1]);
      // A browser that has no time to draw for as long as a hidden page is not waited for.
      const long = await run<number[]>(
        'test.frames.flatMap((at, n) => (test.frames[n + 1] - at > 900 ? [n + 1] : []))',
      );
      expect(twice.filter((frame) => !long.includes(frame))).toEqual([]);
      bot.finish();
      await shows('.bot[data-state=done]', text);
    });

    test('goes on where no frames come, as in a hidden tab', async () => {
      await run('window.requestAnimationFrame = () => 1');
      await say('Hello');
      const { begin, say: bot, finish } = await stage.run('Hello');
      begin();
      bot('You');
      // Asked from outside: the tests' own way to wait is by frames.
      const text = () => run<string>("document.querySelector('.bot')?.textContent");
      while ((await text()) !== 'You') await new Promise((resolve) => setTimeout(resolve, 20));
      finish();
      const status = () => run<string>("document.querySelector('.status')?.textContent");
      while ((await status()) !== 'idle') await new Promise((resolve) => setTimeout(resolve, 20));
    });

    test('draws the one message that changes, however long the conversation is', async () => {
      const past = 500;
      await run(`test.mountWithOwnAnswers(${JSON.stringify(OWN_ANSWER)})`);
      await shows('.session', 'ada');
      await run(`for (let n = 0; n < ${past}; n++) void test.bots.chat.send('own ' + n)`);
      await shows(`li:nth-child(${2 * past})[data-state=done]`, 'By the page.');
      await shows('.status', 'idle');
      await say('Count');
      const bot = await stage.run('Count');
      bot.begin();
      await shows('.status', 'streaming');
      await run('test.rows.length = 0; test.before = test.bots.chat.messages');
      bot.say(...words(0, 100));
      await shows('.bot:last-child', words(0, 100).join(''));
      bot.say(...words(100, 100));
      bot.finish();
      await shows('.bot:last-child[data-state=done]', words(0, 200).join(''));
      expect(await run('[...new Set(test.rows)]')).toEqual([2 * past + 2]);
      const same = 'test.bots.chat.messages.filter((message, n) => message === test.before[n]).length';
      expect(await run(same)).toBe(2 * past + 1);
    });
  });
});
