import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { startBotService } from '../../src/service/bot-service.ts';
import { type Chromium, describeInChromium, oneChromium, type Tab } from '../harness/browser/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactPage,
  type ReactVersion,
  sees,
  servePage,
  startReactPage,
} from '../harness/browser/react-page.ts';
import { until } from '../harness/clock/until.ts';
import { CANARY, OTHER_USER, startRelay, USER } from '../harness/relay/relay.ts';

const { name, password } = USER;
const document = readFileSync(new URL('../../docs/front-end/ai-sdk.md', import.meta.url), 'utf8');
const [, SNIPPET = ''] = /<!-- snippet: ai-sdk -->\n```tsx\n([\s\S]*?)```/.exec(document) ?? [];
const MOUNT = `
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
window.client = client;
const root = createRoot(document.getElementById('root'));
const show = () => root.render(<StrictMode><Talk /></StrictMode>);
window.enter = (name, password) => client.signIn(name, password).then(show);
client.session().then((session) => session && show());
`;

describeInChromium('useChat of the AI SDK', () => {
  const chromium = oneChromium({ keepsTabs: true });
  describe.each(REACT_VERSIONS)('with React %s', (react) => casesWith(chromium, react));

  test('is what the document says, with the demo', () => followDocument(chromium));
});

function casesWith(chromium: Chromium, react: ReactVersion): void {
  let script: string;
  let stage: ReactPage;
  let tab: Tab;
  beforeAll(async () => {
    script = await bundle('tests/client/pages/ai-sdk-chat.jsx', { react });
    stage = await startReactPage(chromium, script, { OPERATIONS: 'message,chat' });
    tab = await stage.open();
  });
  afterAll(async () => {
    await tab.page.context().close();
    await stage.close();
  });
  beforeEach(async () => {
    await tab.page.evaluate('sessionStorage.clear()');
    await stage.renew(tab.page);
    await tab.page.evaluate(`test.client.signIn('${name}', '${password}').then(() => {})`);
  });
  const run = <T = unknown>(code: string) => tab.page.evaluate(code) as Promise<T>;
  const shows = (selector: string, text: string) => sees(tab.page, selector, text);
  const texts = () => stage.runs.map(({ text }) => text);
  const suspends = () =>
    stage.upstream.requests.filter(({ requestLine }) => requestLine.includes('suspend')).length;

  test('runs with this version of React alone', async () => {
    await run('test.mount()');
    await shows('.status', 'ready');
    expect(new Set(script.match(/(?<=")(18|19)(?=\.\d+\.\d+")/g))).toEqual(new Set([react]));
  });

  /** A chat whose answer has one word so far. */
  async function streaming(mount = '{}') {
    await run(`test.mount(${mount})`);
    await run("void test.chat.sendMessage({ text: 'Hello' })");
    const message = await stage.run('Hello');
    message.begin();
    message.say('You');
    await shows('.assistant', 'You');
    await shows('.status', 'streaming');
    return message;
  }

  test('goes on with an answer when it is unmounted, and shows it when it is mounted again', async () => {
    const before = suspends();
    const { say, finish } = await streaming('{ strict: true }');
    await run('test.mount({ strict: true, isShown: false })');
    say(' are');
    await until(async () => (await run<string>('test.chat.messages[1].parts[1].text')) === 'You are');
    await run('test.mount({ strict: true, resume: true })');
    await shows('.assistant', 'You are');
    say(' here.');
    finish();
    await shows('.status', 'ready');
    await shows('.assistant', 'You are here.');
    expect([texts(), suspends() - before]).toEqual([['Hello'], 0]);
  });

  for (const ownChat of [false, true])
    test(`goes on with an answer after a reload, with a chat ${ownChat ? 'of' : 'outside of'} the component`, async () => {
      const before = suspends();
      const { say, finish } = await streaming();
      await tab.page.reload();
      await run(`test.mount({ strict: true, resume: true, ownChat: ${ownChat} })`);
      await shows('.assistant', 'You');
      await shows('.status', 'streaming');
      say(' said');
      finish();
      await shows('.assistant', 'You said');
      await shows('.status', 'ready');
      expect([texts(), suspends() - before]).toEqual([['Hello'], 0]);
      await tab.page.reload();
      await run('test.mount({ strict: true, resume: true })');
      await shows('.status', 'ready');
      expect(await run('test.chat.messages.length')).toBe(0);
    });

  test('is emptied when another user signs in in another tab', async () => {
    const { finish } = await streaming();
    finish();
    await shows('.status', 'ready');
    await shows('.assistant', 'You');
    const second = await stage.open(tab.page.context());
    await second.page.evaluate(
      `test.client.signIn('${OTHER_USER.name}', '${OTHER_USER.password}').then(() => {})`,
    );
    await shows('ol', '');
    await second.page.close();
  });

  test('has no complaints of the browser', () => {
    expect(tab.complaints).toEqual([]);
  });
}

async function followDocument(chromium: Chromium): Promise<void> {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 200 } });
  const relay = await startRelay(service.url, { BOTS: 'demo/echo', OPERATIONS: 'message,chat' });
  const front = await servePage(await bundle({ text: SNIPPET + MOUNT }, { react: '19' }), relay);
  try {
    const { page, complaints } = await chromium.open(`${front.url}/`);
    await page.evaluate(`enter('${name}', '${password}')`);
    const send = async (text: string) => {
      await page.getByLabel('Message').fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
    };
    await send('Hello to all of you');
    await sees(page, '[data-from=assistant]', 'You said: Hello to all of you');
    await send('Once more and many words');
    await page.locator('[data-from=assistant] >> nth=1').filter({ hasText: 'You said: Once' }).waitFor();
    await page.reload();
    await page
      .locator('[data-from=assistant] >> nth=1')
      .filter({ hasText: 'Once more and many words' })
      .waitFor();
    expect(await page.locator('[data-from]').allTextContents()).toEqual([
      ...['Hello to all of you', 'You said: Hello to all of you'],
      ...['Once more and many words', 'You said: Once more and many words'],
    ]);
    await send(Array.from({ length: 100 }, () => 'long').join(' '));
    await page.locator('[data-from=assistant] >> nth=2').filter({ hasText: 'long' }).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('button:text("Stop"):disabled').waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);
    await page.evaluate('client.signOut().then(() => {})');
    await page.locator('[data-from]').first().waitFor({ state: 'detached' });
    expect(complaints).toEqual([]);
  } finally {
    await front.close();
    await relay.close();
    await service.close();
  }
}
