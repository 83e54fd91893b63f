import { expect } from '@jest/globals';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactPage,
  type ReactVersion,
  sees,
  startReactPage,
} from '../harness/browser/react-page.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { USER } from '../harness/relay/relay.ts';

interface Case {
  readonly react: ReactVersion;
  readonly isStrict: boolean;
  /** What suspends: a component beside the one with the hooks, or that one itself after it has called them. */
  readonly who: 'sibling' | 'chat';
}

/** A page whose user is signed in, after both hooks were called in a component that was not shown at first. */
async function opened(stage: ReactPage, { isStrict, who }: Case, open: ReactPage['open']) {
  const { page, complaints } = await open();
  const asked: string[] = [];
  page.on('request', (request) => asked.push(new URL(request.url()).pathname));
  const run = <T = unknown>(code: string) => page.evaluate(code) as Promise<T>;
  const shows = (selector: string, text: string) => sees(page, selector, text);
  const counts = () => run('test.counts');
  await run(`test.mount(${isStrict}, '${who}')`);
  await shows('#fallback', 'waiting');
  expect(await counts()).toEqual({ session: 0, channel: 0 });
  expect(asked).toEqual([]);
  await run('test.wake()');
  await shows('#chat .session', 'null');
  const { name, password } = USER;
  await run(`test.session.signIn(${JSON.stringify(name)}, ${JSON.stringify(password)}).then(() => {})`);
  await shows('#chat .session', name);
  await shows('#chat .user', name);
  const sessions = () => asked.filter((path) => path === '/auth/session');
  return { page, complaints, run, shows, counts, sessions, stage };
}

async function suspends(chromium: ReturnType<typeof oneChromium>, one: Case): Promise<void> {
  const script = await bundle('tests/client/pages/suspense.jsx', { react: one.react });
  const stage = await startReactPage(chromium, script, { JOIN_GRACE_MS: '60000' });
  try {
    const { page, complaints, run, shows, counts, sessions } = await opened(stage, one, stage.open);
    const ONCE = { session: 1, channel: 1 };
    // The session is followed by its hook, and by the channel. In StrictMode, React has effects begin several times.
    const expectNoMore = async () =>
      one.isStrict || expect(await run('test.ever')).toEqual({ session: 2, channel: 1 });
    await expectNoMore();
    expect(await counts()).toEqual(ONCE);
    expect(sessions()).toHaveLength(2);
    await run("void test.bot.send('Hello')");
    const message = await stage.run('Hello');
    message.begin();
    message.say('You');
    await shows('.assistant[data-state=streaming]', 'You');
    await run(`test.sleep('${one.who}')`);
    await shows('#fallback', 'waiting');
    message.say(' said');
    message.say(' hello.');
    message.finish();
    await until(async () => (await run('test.channel.getSnapshot().status')) === 'ready');
    expect(await page.locator('#chat').isVisible()).toBe(false);
    await run('test.wake()');
    await shows('.assistant[data-state=done]', 'You said hello.');
    await page.locator('#chat').waitFor();
    expect(await counts()).toEqual(ONCE);
    await expectNoMore();
    expect(sessions()).toHaveLength(2);
    expect(stage.runs.map(({ text }) => text)).toEqual(['Hello']);
    await run('test.unmount()');
    await until(async () => !(await run('test.isKept()')));
    expect(await counts()).toEqual({ session: 0, channel: 0 });
    // A snapshot changes with the next frame.
    await until(async () => (await run('test.channel.getSnapshot().messages.length')) === 0);
    expect(complaints).toEqual([]);
  } finally {
    await stage.close();
  }
}

describeInChromium('useBot and useSession under Suspense', () => {
  const chromium = oneChromium({ keepsTabs: true });
  const cases = REACT_VERSIONS.flatMap((react) =>
    [false, true].flatMap((isStrict) =>
      (['sibling', 'chat'] as const).map((who) => {
        const what = who === 'sibling' ? 'a component beside them suspends' : 'their own one suspends';
        const title = `subscribe once and go on when ${what}, with React ${react}${isStrict ? ' in StrictMode' : ''}`;
        return [title, () => suspends(chromium, { react, isStrict, who })] as const;
      }),
    ),
  );
  testSideBySide(cases, 2);
});
