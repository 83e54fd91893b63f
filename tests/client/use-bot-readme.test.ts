import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import type { Front } from '../support/front.ts';
import { bundle, REACT_VERSIONS, sees, startPageFront } from '../support/react-stage.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../support/relay.ts';

const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
const [, snippet] = readme.match(/<!-- snippet: react -->\n```jsx\n([\s\S]*?)```/) ?? [];
const MOUNT = `
import { createRoot } from 'react-dom/client';
createRoot(document.getElementById('root')).render(<Chat />);
`;
/** Notes every text that the first answer has had. */
const WATCH = `
window.texts = [];
new MutationObserver(() => {
  const text = document.querySelector('li[data-from=bot]')?.textContent ?? '';
  if (text !== (texts.at(-1) ?? '')) texts.push(text);
}).observe(document.body, { subtree: true, childList: true, characterData: true });
`;
const describeSnippet = snippet === undefined ? describe.skip : describeInChromium;

describeSnippet('the snippet with React', () => {
  const chromium = oneChromium();
  let botService: BotService;
  let relay: TestRelay;
  let front: Front;
  beforeEach(async () => {
    botService = await startBotService({ keys: [CANARY.key], pace: { wordMs: 200 } });
    relay = await startRelay(botService.url, { BOTS: 'demo/echo' });
  });
  afterEach(async () => {
    await front.close();
    await relay.close();
    await botService.close();
  });

  test.each(REACT_VERSIONS)(
    'signs in, shows the answer as it comes and signs out, with React %s',
    async (react) => {
      front = await startPageFront(await bundle({ text: snippet + MOUNT }, { react }), relay);
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
      await page.getByLabel('Message').fill('Hello to all of you');
      await page.getByRole('button', { name: 'Send' }).click();
      await sees(page, 'li:nth-child(2)[data-state=done]', 'You said: Hello to all of you');
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
      await page.context().close();
    },
  );
});
