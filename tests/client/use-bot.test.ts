import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { describeInChromium, oneChromium, type Tab } from '../support/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactStage,
  sees,
  signInBy,
  startReactStage,
} from '../support/react-stage.ts';

describeInChromium('useBot', () => {
  const chromium = oneChromium();

  describe.each(REACT_VERSIONS)('with React %s', (react) => {
    let script: string;
    let stage: ReactStage;
    let tab: Tab;
    /** The paths of all requests of the tab since it was opened. */
    let asked: string[];
    beforeAll(async () => {
      script = await bundle('tests/client/pages/chat.jsx', { react });
    });
    beforeEach(async () => {
      stage = await startReactStage(chromium, script, { BOTS: 'acme/helper,acme/other' });
      tab = await stage.open();
      asked = [];
      tab.page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    });
    afterEach(async () => {
      await tab.page.context().close();
      await stage.close();
      expect(tab.complaints).toEqual([]);
    });
    const run = <T = unknown>(code: string) => tab.page.evaluate(code) as Promise<T>;
    const sessionRequests = () => asked.filter((path) => path === '/auth/session');
    const shows = (selector: string, text: string) => sees(tab.page, `#chat ${selector}`, text);
    /** Sends, and waits for nothing. */
    const say = (text: string) => run(`void test.bots.chat.send(${JSON.stringify(text)})`);
    async function signedIn(mount = '{}') {
      await run(`test.mount(${mount})`);
      await shows('.session', 'nobody');
      await signInBy(tab.page);
    }
    /** A message to which the bot has said one word, and goes on. */
    async function streaming(text = 'Hello') {
      await say(text);
      const message = await stage.run(text);
      message.begin();
      message.say('You');
      await shows('.bot:last-child[data-state=streaming]', 'You');
      return message;
    }
    const requestId = () => run<string>('test.bots.chat.messages.at(-1).requestId');

    test('is the version that it should be', async () => {
      await run('test.mount()');
      await shows('.session', 'nobody');
      expect(script).toContain(`"${react}.`);
    });

    test('does not know at first who is signed in, then asks', async () => {
      await run('test.mount()');
      await shows('.session', 'nobody');
      await signInBy(tab.page);
      const again = await stage.open(tab.page.context());
      await again.page.evaluate('test.mount()');
      await sees(again.page, '.session', 'ada');
    });

    test('shows a message at once, and the words of its answer as they come', async () => {
      await signedIn();
      await say('Hello');
      await shows('.user', 'Hello');
      await shows('.status', 'waiting');
      const { begin, say: bot, finish } = await stage.run('Hello');
      begin();
      await shows('.status', 'streaming');
      bot('You');
      await shows('.bot', 'You');
      bot(' said');
      await shows('.bot', 'You said');
      await shows('.bot[data-state=streaming]', 'You said');
      bot(' hello.');
      finish();
      await shows('.bot[data-state=done]', 'You said hello.');
      await shows('.status', 'idle');
    });

    test.each(['waiting', 'streaming'])('stops an answer that is %s, and the run with it', async (status) => {
      await signedIn();
      await say('Hello');
      const { begin, say: bot, gone } = await stage.run('Hello');
      if (status === 'streaming') {
        begin();
        bot('You');
        await shows('.bot', 'You');
      } else await shows('.status', 'waiting');
      await run('test.bots.chat.stop()');
      await gone;
      await shows('.bot[data-state=stopped]', status === 'streaming' ? 'You' : '');
      await shows('.status', 'idle');
      await shows('.error', '');
    });

    test('shows why an answer broke off, and takes the next message', async () => {
      await signedIn();
      const { breakOff } = await streaming();
      breakOff();
      await shows('.bot[data-state=failed]', 'You');
      expect(await requestId()).toMatch(/./);
      await shows('.error', `upstream_stream_broken ${await requestId()}`);
      const id = await requestId();
      await stage.relay.logLine((line) => line.requestId === id);
      await shows('.status', 'idle');
      const { finish } = await streaming('Again');
      await shows('.error', '');
      finish();
      await shows('.bot:last-child[data-state=done]', 'You');
      await shows('.bot[data-state=failed]', 'You');
    });

    test('fails a message whose run the bot ends with an error', async () => {
      await signedIn();
      const { send, finish } = await streaming();
      send({ runError: { error: { message: 'Too many steps.', code: 'STEP_LIMIT_EXCEEDED' } } });
      finish();
      await shows('.bot[data-state=failed]', 'You');
      await shows('.error', `STEP_LIMIT_EXCEEDED ${await requestId()}`);
      expect(await run('test.bots.chat.messages.at(-1).error.message')).toBe('Too many steps.');
    });

    test('keeps several messages apart that are under way at once', async () => {
      await signedIn();
      await say('one');
      await say('two');
      const [one, two] = [await stage.run('one'), await stage.run('two')];
      two.answer('second');
      await shows('li:nth-child(4)[data-state=done]', 'second');
      await shows('li:nth-child(2)[data-state=waiting]', '');
      await shows('.status', 'waiting');
      one.answer('first');
      await shows('li:nth-child(2)[data-state=done]', 'first');
      await shows('.status', 'idle');
      expect(await run('test.bots.chat.messages.map(({ text }) => text)')).toEqual([
        'one',
        'first',
        'two',
        'second',
      ]);
    });

    test('shows a wrong password, and nobody in', async () => {
      await run('test.mount()');
      await shows('.session', 'nobody');
      await run("test.bots.chat.signIn('ada', 'wrong')");
      await tab.page.locator('.error', { hasText: 'invalid_credentials' }).waitFor();
      await shows('.session', 'nobody');
      await signInBy(tab.page);
      await shows('.error', '');
    });

    test('signs a guest in', async () => {
      const guests = await startReactStage(chromium, script, { AUTH_MODE: 'guest' });
      try {
        const { page } = await guests.open(tab.page.context());
        await page.evaluate('test.mount()');
        await sees(page, '.session', 'nobody');
        await page.evaluate('test.bots.chat.signInAsGuest().then(() => {})');
        await page.locator('.session', { hasNotText: 'nobody' }).waitFor();
        await page.evaluate("void test.bots.chat.send('Hello')");
        (await guests.run('Hello')).answer('Guest');
        await sees(page, '.bot[data-state=done]', 'Guest');
      } finally {
        await guests.close();
      }
    });

    test('signs out, which stops the answers', async () => {
      await signedIn();
      const { gone } = await streaming();
      expect(await run('test.bots.chat.signOut()')).toEqual({ logoutUrl: null });
      await gone;
      await shows('.session', 'nobody');
      await shows('.bot[data-state=stopped]', 'You');
      await shows('.error', '');
    });

    test('sees with the next message that the session is over', async () => {
      await signedIn();
      await run("fetch('/auth/logout', { method: 'POST' }).then(() => {})");
      await shows('.session', 'ada');
      await say('Hello');
      await shows('.session', 'nobody');
      await shows('.bot[data-state=failed]', '');
      await shows('.error', `unauthenticated ${await requestId()}`);
      await signInBy(tab.page);
      await streaming('Again');
    });

    test('asks once who is signed in, stops nothing and warns of nothing when effects run twice', async () => {
      await signedIn('{ strict: true }');
      expect(sessionRequests()).toHaveLength(1);
      await run("test.mount({ strict: true, chats: [{ name: 'second', sayAtOnce: 'Hello' }] })");
      await sees(tab.page, '#second .bot[data-state=waiting]', '');
      // Of the component, whose effect the rehearsal runs twice.
      const said = () => stage.runs.filter(({ text }) => text === 'Hello');
      while (said().length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
      for (const { answer } of said()) answer('Hi');
      await sees(tab.page, '#second li:nth-child(2)[data-state=done]', 'Hi');
      await sees(tab.page, '#second li:nth-child(4)[data-state=done]', 'Hi');
      expect(sessionRequests()).toHaveLength(2);
    });

    test.each(['waiting', 'streaming'])('stops an answer that is %s when it is unmounted', async (status) => {
      await signedIn('{ strict: true }');
      await (status === 'streaming' ? streaming() : say('Hello'));
      const { gone } = await stage.run('Hello');
      await run('test.last = test.bots.chat; test.unmount(); test.renders.length = 0');
      await gone;
      await run("test.last.send('late'); test.last.stop()");
      // What would come of it has come when this has.
      await run("fetch('/auth/session').then(() => new Promise(requestAnimationFrame)).then(() => {})");
      expect(stage.runs.map(({ text }) => text)).toEqual(['Hello']);
      expect(await run('test.renders')).toEqual([]);
    });

    test('begins a new conversation with another bot, and stops the answers of the old one', async () => {
      await signedIn();
      const { gone } = await streaming();
      await run("test.mount({ chats: [{ botProviderName: 'other' }] })");
      await gone;
      await shows('.session', 'ada');
      await shows('ol', '');
      const other = await streaming('Other');
      expect(stage.upstream.requests.at(-1)?.requestLine).toContain('/bot-provider/other/');
      other.finish();
      await shows('.bot[data-state=done]', 'You');
    });

    test('goes on with what a server has drawn', async () => {
      await run('test.hydrate()');
      expect(await run('test.drawn')).toBe('unknownidle');
      await shows('.session', 'nobody');
      await signInBy(tab.page);
      await streaming();
    });

    test('goes on with the same conversation whenever it is drawn', async () => {
      await signedIn();
      const { finish, say: bot } = await streaming();
      await run('test.last = test.bots.chat; test.mount()');
      await run('test.mount({ chats: [{ silenceMs: 40_000 }] })');
      bot(' are.');
      finish();
      await shows('.bot[data-state=done]', 'You are.');
      expect(sessionRequests()).toHaveLength(1);
      expect(
        await run('["send", "stop", "signIn", "signOut"].every((f) => test.last[f] === test.bots.chat[f])'),
      ).toBe(true);
    });

    test('keeps two components with the same options apart', async () => {
      await signedIn("{ chats: [{ name: 'other' }, {}] }");
      const { finish } = await streaming();
      await run("void test.bots.other.send('Me too')");
      const { gone } = await stage.run('Me too');
      await sees(tab.page, '#other .user', 'Me too');
      await run('test.mount()');
      await gone;
      finish();
      await shows('.bot[data-state=done]', 'You');
      expect(await run('test.bots.chat.messages.length')).toBe(2);
    });
  });
});
