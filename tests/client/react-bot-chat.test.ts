import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { signIn, signOut } from '../harness/browser/chat-page.ts';
import { type Chromium, describeInChromium, oneChromium, type Tab } from '../harness/browser/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactPage,
  type ReactVersion,
  startReactPage,
} from '../harness/browser/react-page.ts';
import { until } from '../harness/clock/until.ts';
import { USER } from '../harness/relay/relay.ts';

describeInChromium('<BotChat>', () => {
  const chromium = oneChromium({ keepsTabs: true });
  describe.each(REACT_VERSIONS)('with React %s', (react) => casesWith(chromium, react));
});

function casesWith(chromium: Chromium, react: ReactVersion): void {
  let stage: ReactPage;
  let tab: Tab;
  beforeAll(async () => {
    const script = await bundle('tests/client/pages/bot-chat.jsx', { react });
    stage = await startReactPage(chromium, script, { BOTS: 'acme/helper', CHAT_PAGE: 'on' });
    tab = await stage.open();
  });
  afterAll(async () => {
    await tab.page.context().close();
    await stage.close();
  });
  beforeEach(() => stage.renew(tab.page));
  const run = <T = unknown>(code: string) => tab.page.evaluate(code) as Promise<T>;

  test('is the element with its attributes, which a later render changes', async () => {
    await run('test.mount()');
    await tab.page.locator('bot-chat').getByRole('button', { name: 'Sign in' }).waitFor();
    const attribute = (name: string) => run(`document.querySelector('bot-chat').getAttribute('${name}')`);
    expect(await Promise.all(['bot', 'heading', 'suggestions', 'class', 'style'].map(attribute))).toEqual([
      ...['acme/helper', 'Help', 'One\nTwo', 'chat', 'height: 400px;'],
    ]);
    await run(
      "test.mount({ heading: 'More', lang: 'ar', baseUrl: location.origin, suggestions: undefined })",
    );
    await until(async () => (await attribute('heading')) === 'More');
    expect(await Promise.all(['lang', 'base-url', 'suggestions'].map(attribute))).toEqual([
      ...['ar', stage.url, null],
    ]);
  });

  test('calls the functions of the last render, and gives its ref the element', async () => {
    await run('test.mount()');
    await until(async () => (await run<number>('test.ready.length')) === 1);
    expect(await run('test.ready')).toEqual([null]);
    expect(await run("test.ref.current === document.querySelector('bot-chat')")).toBe(true);
    await run('test.mount({ onSignedOut: () => void (test.signOuts += 10) })');
    await signIn(tab.page, USER);
    await signOut(tab.page);
    await until(async () => (await run<number>('test.signOuts')) === 10);
    await run("test.mount({ bot: 'no name' })");
    await until(async () => (await run<number>('test.errors.length')) === 1);
    await run('test.unmount()');
    expect(await run('test.ref.current')).toBeNull();
  });

  test('is an empty element on a server, which the page goes on with', async () => {
    await run('test.hydrate()');
    expect(await run('test.drawn')).toMatch(/^<bot-chat [^>]*class="chat"[^>]*><\/bot-chat>$/);
    await tab.page.locator('bot-chat').getByRole('button', { name: 'Sign in' }).waitFor();
  });

  test('has no complaints of the browser', () => {
    expect(tab.complaints).toEqual([]);
  });
}
