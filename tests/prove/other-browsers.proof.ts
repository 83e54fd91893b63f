import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { longMessage, startDemoRelay } from '../harness/browser/chat-page.ts';
import { OTHER_BROWSERS, type OtherBrowser } from '../harness/browser/other-browsers.ts';
import { until } from '../harness/clock/until.ts';
import { type RelayProcess, stopProcesses } from '../harness/relay/process.ts';

jest.setTimeout(180_000);

const ROOT = "document.querySelector('bot-chat')?.shadowRoot";
const find = (selector: string) => `${ROOT}?.querySelector(${JSON.stringify(selector)})`;
const WORDS = longMessage(8);

let relay: RelayProcess;
let browser: OtherBrowser;
beforeAll(() => {
  relay = startDemoRelay();
});
afterEach(() => browser?.close());
afterAll(() => stopProcesses());

const posts = () => relay.stdout().match(/"method":"POST","route":"[^"]*message\/sse"/g)?.length ?? 0;
/** Waits until an element is there and shown. */
const shown = (selector: string) =>
  until(
    async () => (await browser.evaluate(`Boolean(${find(selector)}?.getClientRects().length)`)) === 'true',
    50,
  );

describe.each(OTHER_BROWSERS)('the chat page in $name', ({ start, isInstalled }) => {
  (isInstalled ? test : test.skip)(
    'signs in, streams an answer, and goes on with it after a reload',
    async () => {
      const url = `http://localhost:${await relay.listening()}/`;
      const before = posts();
      browser = await start();
      await browser.open(url);
      await shown('.sign-in button');
      await browser.evaluate(`${find('.sign-in button')}.click()`);
      await shown('.empty h3');
      await browser.evaluate(`Object.assign(${find('textarea')}, { value: ${JSON.stringify(WORDS)} })`);
      await browser.evaluate(`${find('.composer')}.requestSubmit()`);
      await shown('.answer[data-state=streaming]');
      const answer = () => browser.evaluate(`${find('.answer-text')}?.textContent`);
      await until(async () => (await answer()).startsWith('You said: word word'), 50);
      expect(await answer()).not.toBe(`You said: ${WORDS}`);
      await browser.open(url);
      await shown('.answer[data-state=streaming]');
      await shown('.answer[data-state=done]');
      const texts = `JSON.stringify([...${ROOT}?.querySelectorAll('.messages .text')].map((one) => one.textContent))`;
      expect(JSON.parse(await browser.evaluate(texts))).toEqual([WORDS, `You said: ${WORDS}`]);
      // The message is one paid run.
      expect(posts() - before).toBe(1);
    },
  );
});
