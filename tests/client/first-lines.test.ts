import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { bundle, servePage } from '../harness/browser/react-page.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

/** The first lines of a page of the documents, and the component that they export. */
const FIRST = [
  { page: 'react', snippet: 'first-react', component: 'App' },
  { page: 'react', snippet: 'react-chat', component: 'App' },
  { page: 'ai-sdk', snippet: 'first-ai-sdk', component: 'Talk' },
];
const mount = (component: string) => `
import { createRoot } from 'react-dom/client';
createRoot(document.getElementById('root')).render(<${component} />);
`;

/** Signs `USER` in, as the page's own sign-in does. */
const SIGN_IN = `fetch('/auth/login', {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: '${JSON.stringify({ username: USER.name, password: USER.password })}',
}).then(() => {})`;

/** Says hello as the user does: by the button of the snippet, or by a suggestion of the chat. */
const sayHello = (page: Page) => page.getByRole('button', { name: /^(Say hello|Hello)$/ }).click();

describeInChromium('the first lines of a page for React', () => {
  const chromium = oneChromium();
  let service: BotService;
  let relay: TestRelay;
  beforeAll(async () => {
    service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 1 } });
    relay = await startRelay(service.url, { BOTS: 'demo/echo', OPERATIONS: 'message,chat' });
  });
  afterAll(async () => {
    await relay.close();
    await service.close();
  });

  test.each(FIRST)('run: $snippet', async ({ page: name, snippet, component }) => {
    const path = new URL(`../../docs/front-end/${name}.md`, import.meta.url);
    const code = codeOf(readFileSync(path, 'utf8'), snippet);
    const front = await servePage(await bundle({ text: code + mount(component) }, { react: '19' }), relay);
    try {
      const { page, complaints } = await chromium.open(`${front.url}/`);
      await page.evaluate(SIGN_IN);
      await page.reload();
      await sayHello(page);
      await page.getByText('You said: Hello', { exact: true }).waitFor();
      expect(complaints).toEqual([]);
    } finally {
      await front.close();
    }
  });
});
