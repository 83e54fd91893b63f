import { afterAll, beforeAll, expect } from '@jest/globals';
import { describeInChromium, oneChromium, type Tab } from '../harness/browser/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactPage,
  type ReactVersion,
  sees,
  signInBy,
  startReactPage,
} from '../harness/browser/react-page.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';

const NEWEST = REACT_VERSIONS.at(-1);

describeInChromium('useBot', () => {
  const chromium = oneChromium({ keepsTabs: true });

  // Each version of React has its tab, in which one case follows the other.
  for (const react of REACT_VERSIONS) testSideBySide(casesWith(react), 1);

  function casesWith(react: ReactVersion) {
    let script: string;
    let stage: ReactPage;
    let tab: Tab;
    /** The paths of all requests of the tab in this test. */
    const asked: string[] = [];
    beforeAll(async () => {
      script = await bundle('tests/client/pages/chat.jsx', { react });
      // Nobody comes back to an answer that its page has left.
      const environment = { BOTS: 'acme/helper,acme/other', JOIN_GRACE_MS: '200' };
      stage = await startReactPage(chromium, script, environment);
      tab = await stage.open();
      tab.page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    });
    afterAll(async () => {
      await tab.page.context().close();
      await stage.close();
      expect(tab.complaints).toEqual([]);
    });
    const run = <T = unknown>(code: string) => tab.page.evaluate(code) as Promise<T>;
    const sessionRequests = () => asked.filter((path) => path === '/auth/session');
    const shows = (selector: string, text: string) => sees(tab.page, `#chat ${selector}`, text);
    /** Sends a message without waiting. */
    const say = (text: string) => run(`void test.bots.chat.send(${JSON.stringify(text)})`);
    async function signedIn(mount = '{}') {
      await run(`test.mount(${mount})`);
      await shows('.session', 'nobody');
      await signInBy(tab.page);
    }
    /** A message whose answer has one word so far. */
    async function streaming(text = 'Hello') {
      await say(text);
      const message = await stage.run(text);
      message.begin();
      message.say('You');
      await shows('.assistant:last-child[data-state=streaming]', 'You');
      return message;
    }
    const requestId = () => run<string>('test.bots.chat.messages.at(-1).metadata.requestId');

    const cases: [title: string, run: () => Promise<void>][] = [];
    /** What no version of React does for the hook is tested with the newest one. */
    const addOnce = (title: string, use: () => Promise<void>) => react === NEWEST && add(title, use);
    const add = (title: string, use: () => Promise<void>) =>
      cases.push([
        `${title}, with React ${react}`,
        async () => {
          await stage.renew(tab.page);
          asked.length = 0;
          await use();
          expect(tab.complaints.splice(0)).toEqual([]);
        },
      ]);

    add('runs with this version of React', async () => {
      await run('test.mount()');
      await shows('.session', 'nobody');
      expect(script).toContain(`"${react}.`);
    });

    add('has no session at first, and then asks for it', async () => {
      await run('test.mount()');
      await shows('.session', 'nobody');
      await signInBy(tab.page);
      const again = await stage.open(tab.page.context());
      await again.page.evaluate('test.mount()');
      await sees(again.page, '.session', 'ada');
      await again.page.close();
    });

    add('shows a message at once, and the words of its answer as they arrive', async () => {
      await signedIn();
      await say('Hello');
      await shows('.user', 'Hello');
      await shows('.status', 'submitted');
      const { begin, say: bot, finish } = await stage.run('Hello');
      begin();
      await shows('.status', 'streaming');
      bot('You');
      await shows('.assistant', 'You');
      bot(' said');
      await shows('.assistant', 'You said');
      await shows('.assistant[data-state=streaming]', 'You said');
      bot(' hello.');
      finish();
      await shows('.assistant[data-state=done]', 'You said hello.');
      await shows('.status', 'ready');
    });

    addOnce('shows why an answer broke off, and takes the next message', async () => {
      await signedIn();
      const { breakOff } = await streaming();
      breakOff();
      await shows('.assistant[data-state=error]', 'You');
      expect(await requestId()).toMatch(/./);
      await shows('.error', `upstream_stream_broken ${await requestId()}`);
      const id = await requestId();
      await stage.relay.logLine((line) => line.requestId === id);
      await shows('.status', 'error');
      const { finish } = await streaming('Again');
      await shows('.error', '');
      finish();
      await shows('.assistant:last-child[data-state=done]', 'You');
      await shows('.assistant[data-state=error]', 'You');
    });

    addOnce('shows the error of a wrong password, and no session', async () => {
      await run('test.mount()');
      await shows('.session', 'nobody');
      await run("test.bots.chat.signIn('ada', 'wrong')");
      await tab.page.locator('.error', { hasText: 'invalid_credentials' }).waitFor();
      await shows('.session', 'nobody');
      await signInBy(tab.page);
      await shows('.error', '');
    });

    add(
      'asks once for the session, and once in a sign-in, and stops nothing in StrictMode, without a warning',
      async () => {
        await signedIn('{ strict: true }');
        // Before the sign-in, and by it.
        expect(sessionRequests()).toHaveLength(2);
        const second = "{ name: 'second', id: 'second', whileBusy: 'queue', sayAtOnce: 'Hello' }";
        await run(`test.mount({ strict: true, chats: [${second}] })`);
        await sees(tab.page, '#second .assistant[data-state=submitted]', '');
        // The effect of the component itself runs twice in StrictMode.
        const said = () => stage.runs.filter(({ text }) => text === 'Hello');
        await until(() => said().length === 1);
        said()[0]?.answer('Hi');
        await until(() => said().length === 2);
        said()[1]?.answer('Hi');
        await sees(tab.page, '#second li:nth-child(2)[data-state=done]', 'Hi');
        await sees(tab.page, '#second li:nth-child(4)[data-state=done]', 'Hi');
        // Before the sign-in, and by it.
        expect(sessionRequests()).toHaveLength(2);
      },
    );

    add('goes on with an answer when it is unmounted, and shows it when it is mounted again', async () => {
      await signedIn('{ strict: true }');
      const { say: bot, finish } = await streaming();
      await run('test.mount({ strict: true, chats: [] })');
      bot(' are');
      await run('test.renders.length = 0');
      bot(' here.');
      finish();
      await run('test.mount({ strict: true })');
      await shows('.assistant[data-state=done]', 'You are here.');
      expect(stage.runs.map(({ text }) => text)).toEqual(['Hello']);
    });

    add('has another channel with another bot', async () => {
      await signedIn();
      await streaming();
      await run("test.mount({ bot: { botProviderName: 'other' } })");
      await shows('.session', 'ada');
      await shows('ol', '');
      const other = await streaming('Other');
      expect(stage.upstream.requests.at(-1)?.requestLine).toContain('/bot-provider/other/');
      other.finish();
      await shows('.assistant[data-state=done]', 'You');
    });

    add('continues from the HTML of a server', async () => {
      await run('test.hydrate()');
      expect(await run('test.drawn')).toBe('unknownready');
      await shows('.session', 'nobody');
      await signInBy(tab.page);
      await streaming();
    });

    add('keeps its conversation in all renders', async () => {
      await signedIn();
      const { finish, say: bot } = await streaming();
      await run('test.last = test.bots.chat; test.mount()');
      await run('test.mount({ bot: { expert: { silenceMs: 40_000 } } })');
      bot(' are.');
      finish();
      await shows('.assistant[data-state=done]', 'You are.');
      // Before the sign-in, and by it.
      expect(sessionRequests()).toHaveLength(2);
      expect(
        await run('["send", "stop", "signIn", "signOut"].every((f) => test.last[f] === test.bots.chat[f])'),
      ).toBe(true);
    });

    addOnce('shares a channel between components, and keeps channels with other ids apart', async () => {
      await signedIn("{ chats: [{ name: 'other', id: 'other' }, {}, { name: 'same' }] }");
      const { finish } = await streaming();
      await sees(tab.page, '#same .assistant', 'You');
      await run("void test.bots.other.send('Me too')");
      await stage.run('Me too');
      await sees(tab.page, '#other .user', 'Me too');
      finish();
      await shows('.assistant[data-state=done]', 'You');
      expect(await run('test.bots.same.messages === test.bots.chat.messages')).toBe(true);
      expect(await run('test.bots.chat.messages.length')).toBe(2);
      // Before the sign-in, and by it.
      expect(sessionRequests()).toHaveLength(2);
    });
    return cases;
  }
});
