import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type Chromium, describeInChromium, startChromium, type Tab } from '../support/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactStage,
  sees,
  signInBy,
  startReactStage,
} from '../support/react-stage.ts';

describeInChromium('useBot', () => {
  let chromium: Chromium;
  beforeAll(async () => {
    chromium = await startChromium();
  });
  afterAll(() => chromium?.close());

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
    });
    afterEach(async () => {
      await tab.page.context().close();
      await stage.close();
      expect(tab.complaints).toEqual([]);
    });
    const run = <T = unknown>(code: string) => tab.page.evaluate(code) as Promise<T>;
    const shows = (selector: string, text: string) => sees(tab.page, `#chat ${selector}`, text);
    /** Sends, and waits for nothing. */
    const say = (text: string) => run(`void test.bots.chat.send(${JSON.stringify(text)})`);
    async function signedIn() {
      await run('test.mount()');
      await shows('.session', 'nobody');
      await signInBy(tab.page);
    }

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
  });
});
