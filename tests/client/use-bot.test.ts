import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { type Chromium, describeInChromium, oneChromium, type Tab } from '../harness/browser/chromium.ts';
import {
  bundle,
  REACT_VERSIONS,
  type ReactPage,
  type ReactVersion,
  sees,
  servePage,
  signInBy,
  startReactPage,
} from '../harness/browser/react-page.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { eventOf } from '../harness/service/bot-runs.ts';

type Case = readonly [title: string, run: () => Promise<void>];
const NEWEST = REACT_VERSIONS.at(-1) as ReactVersion;
const runIn =
  (page: Page) =>
  <T = unknown>(code: string) =>
    page.evaluate(code) as Promise<T>;

function hookCases(chromium: Chromium, react: ReactVersion): Case[] {
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
  const run = <T = unknown>(code: string) => runIn(tab.page)<T>(code);
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

  const cases: Case[] = [];
  const add = (title: string, use: () => Promise<void>) =>
    cases.push([
      `useBot ${title}, with React ${react}`,
      async () => {
        await stage.renew(tab.page);
        asked.length = 0;
        await use();
        expect(tab.complaints.splice(0)).toEqual([]);
      },
    ]);
  /** What no version of React does for the hook is tested with the newest one. */
  const addOnce = (title: string, use: () => Promise<void>) => react === NEWEST && add(title, use);

  add('has no session at first, then asks for it, and runs with this version of React', async () => {
    expect(script).toContain(`"${react}.`);
    await signedIn();
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
    await shows('.assistant[data-state=streaming]', 'You said');
    bot(' hello.');
    finish();
    await shows('.assistant[data-state=done]', 'You said hello.');
    await shows('.status', 'ready');
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

  add('asks once for the session, and once in a sign-in, and stops nothing in StrictMode', async () => {
    await signedIn('{ strict: true }');
    const second = "{ name: 'second', id: 'second', whileBusy: 'queue', sayAtOnce: 'Hello' }";
    await run(`test.mount({ strict: true, chats: [${second}] })`);
    await sees(tab.page, '#second .assistant[data-state=submitted]', '');
    // The effect of the component itself runs twice in StrictMode.
    const said = () => stage.runs.filter(({ text }) => text === 'Hello');
    for (const at of [0, 1]) {
      await until(() => said().length === at + 1);
      said()[at]?.answer('Hi');
    }
    for (const at of [2, 4]) await sees(tab.page, `#second li:nth-child(${at})[data-state=done]`, 'Hi');
    // Before the sign-in, and by it.
    expect(sessionRequests()).toHaveLength(2);
  });

  add('goes on with an answer when it is unmounted, and shows it when it is mounted again', async () => {
    await signedIn('{ strict: true }');
    const { say: bot, finish } = await streaming();
    await run('test.mount({ strict: true, chats: [] })');
    bot(' are');
    bot(' here.');
    finish();
    await run('test.mount({ strict: true })');
    await shows('.assistant[data-state=done]', 'You are here.');
    expect(stage.runs.map(({ text }) => text)).toEqual(['Hello']);
  });

  addOnce('has another channel with another bot', async () => {
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

  addOnce('keeps its conversation and its functions in all renders', async () => {
    await signedIn();
    const { finish, say: bot } = await streaming();
    await run('test.last = test.bots.chat; test.mount()');
    await run('test.mount({ bot: { expert: { silenceMs: 40_000 } } })');
    bot(' are.');
    finish();
    await shows('.assistant[data-state=done]', 'You are.');
    // Before the sign-in, and by it.
    expect(sessionRequests()).toHaveLength(2);
    const isSame = '["send", "stop", "signIn", "signOut"].every((f) => test.last[f] === test.bots.chat[f])';
    expect(await run(isSame)).toBe(true);
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

/** An answer that the page makes itself. */
const OWN_ANSWER = eventOf({ messageComplete: { message: { text: 'By the page.' } } });
const words = (from: number, count: number) => Array.from({ length: count }, (_, n) => `${from + n} `);

/** A tab of its own with a mounted chat, signed in. */
interface Chat {
  readonly stage: ReactPage;
  run<T = unknown>(code: string): Promise<T>;
  shows(selector: string, text: string): Promise<void>;
  say(text: string): Promise<unknown>;
}

async function rendersOncePerFrame({ stage, run, shows, say }: Chat): Promise<void> {
  await say('Count');
  const bot = await stage.run('Count');
  bot.begin();
  await shows('.status', 'streaming');
  await run('test.renders.length = 0');
  let text = '';
  for (let from = 0; from < 1000; from += 100) {
    // Half of the words arrive in one piece, and half in a piece each.
    bot.say(...words(from, 50));
    for (const word of words(from + 50, 50)) bot.say(word);
    text += words(from, 100).join('');
    // Each burst is rendered before the next one.
    await shows('.assistant', text);
  }
  const renders = await run<number[]>('test.renders');
  expect(renders.length).toBeGreaterThanOrEqual(10);
  const twice = renders.filter((frame, n) => frame === renders[n - 1]);
  // Frames that took longer than the longest wait do not count.
  const long = await run<number[]>(
    'test.frames.flatMap((at, n) => (test.frames[n + 1] - at > 900 ? [n + 1] : []))',
  );
  expect(twice.filter((frame) => !long.includes(frame))).toEqual([]);
  bot.finish();
  await shows('.assistant[data-state=done]', text);
}

async function rendersWithoutFrames({ stage, run, say }: Chat): Promise<void> {
  await run('window.requestAnimationFrame = () => 1');
  await say('Hello');
  const { begin, say: bot, finish } = await stage.run('Hello');
  begin();
  bot('You');
  // Polled from outside, since the page's own waiting uses frames.
  const text = () => run<string>("document.querySelector('.assistant')?.textContent");
  await until(async () => (await text()) === 'You', 20);
  finish();
  const status = () => run<string>("document.querySelector('.status')?.textContent");
  await until(async () => (await status()) === 'ready', 20);
}

async function rendersOnlyTheChange({ stage, run, shows, say }: Chat): Promise<void> {
  const past = 50;
  await run(`test.mountWithOwnAnswers(${JSON.stringify(OWN_ANSWER)})`);
  await shows('.session', 'ada');
  await run(`(async () => { for (let n = 0; n < ${past}; n++) await test.bots.chat.send('own ' + n); })()`);
  await shows(`li:nth-child(${2 * past})[data-state=done]`, 'By the page.');
  await shows('.status', 'ready');
  await say('Go on');
  const bot = await stage.run('Go on');
  bot.begin();
  await shows('.status', 'streaming');
  await run('test.rows.length = 0; test.before = test.bots.chat.messages');
  bot.say(...words(0, 100));
  await shows('.assistant:last-child', words(0, 100).join(''));
  bot.say(...words(100, 100));
  bot.finish();
  await shows('.assistant:last-child[data-state=done]', words(0, 200).join(''));
  const last = await run('test.bots.chat.messages.at(-1).id');
  expect(await run('[...new Set(test.rows)]')).toEqual([last]);
  const same = 'test.bots.chat.messages.filter((message, n) => message === test.before[n]).length';
  expect(await run(same)).toBe(2 * past + 1);
}

function drawnCases(chromium: Chromium): void {
  let stage: ReactPage;
  beforeAll(async () => {
    stage = await startReactPage(chromium, await bundle('tests/client/pages/chat.jsx', { react: NEWEST }));
  });
  afterAll(() => stage.close());

  async function inChat(use: (chat: Chat) => Promise<void>): Promise<void> {
    const { page, complaints } = await stage.open();
    const run = runIn(page);
    const shows = (selector: string, text: string) => sees(page, `#chat ${selector}`, text);
    await run('test.mount()');
    await shows('.session', 'nobody');
    await signInBy(page);
    const say = (text: string) => run(`void test.bots.chat.send(${JSON.stringify(text)})`);
    await use({ stage, run, shows, say });
    await page.context().close();
    expect(complaints).toEqual([]);
  }
  testSideBySide([
    ['renders at most once per frame, however many words arrive', () => inChat(rendersOncePerFrame)],
    ['also renders without frames, as in a hidden tab', () => inChat(rendersWithoutFrames)],
    [
      'renders only the message that changes, however long the conversation is',
      () => inChat(rendersOnlyTheChange),
    ],
  ]);
}

function suspenseCases(chromium: Chromium): void {
  const stages = new Map<ReactVersion, ReactPage>();
  beforeAll(async () => {
    for (const react of REACT_VERSIONS) {
      const script = await bundle('tests/client/pages/suspense.jsx', { react });
      stages.set(react, await startReactPage(chromium, script, { JOIN_GRACE_MS: '60000' }));
    }
  });
  afterAll(async () => {
    for (const stage of stages.values()) await stage.close();
  });

  /** `who` suspends: a component beside the one with the hooks, or that one itself after it has called them. */
  async function suspends(react: ReactVersion, who: 'sibling' | 'chat', isStrict: boolean): Promise<void> {
    const stage = stages.get(react) as ReactPage;
    const { page, complaints } = await stage.open();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    const run = runIn(page);
    const shows = (selector: string, text: string) => sees(page, selector, text);
    const counts = () => run('test.counts');
    const sessions = () => asked.filter((path) => path === '/auth/session');
    // Both hooks are called in a component that is not shown at first.
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
    const ONCE = { session: 1, channel: 1 };
    // The session is followed by its hook, and by the channel. In StrictMode, React has effects begin several times.
    const expectNoMore = async () =>
      isStrict || expect(await run('test.ever')).toEqual({ session: 2, channel: 1 });
    await expectNoMore();
    expect(await counts()).toEqual(ONCE);
    expect(sessions()).toHaveLength(2);
    const text = `${who} ${isStrict}`;
    await run(`void test.bot.send('${text}')`);
    const message = await stage.run(text);
    message.begin();
    message.say('You');
    await shows('.assistant[data-state=streaming]', 'You');
    await run(`test.sleep('${who}')`);
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
    expect(stage.runs.filter((one) => one.text === text)).toHaveLength(1);
    await run('test.unmount()');
    await until(async () => !(await run('test.isKept()')));
    expect(await counts()).toEqual({ session: 0, channel: 0 });
    // A snapshot changes with the next frame.
    await until(async () => (await run('test.channel.getSnapshot().messages.length')) === 0);
    expect(complaints).toEqual([]);
    await page.context().close();
  }

  const ways = [
    ['sibling', false, REACT_VERSIONS],
    ['sibling', true, [NEWEST]],
    ['chat', false, [NEWEST]],
    ['chat', true, REACT_VERSIONS],
  ] as const;
  const cases = ways.flatMap(([who, isStrict, versions]) =>
    versions.map((react): Case => {
      const what = who === 'sibling' ? 'a component beside them suspends' : 'their own one suspends';
      const title = `subscribe once and go on when ${what}, with React ${react}${isStrict ? ' in StrictMode' : ''}`;
      return [title, () => suspends(react, who, isStrict)];
    }),
  );
  testSideBySide(cases, 2);
}

function chatCases(chromium: Chromium): void {
  const { name, password } = USER;
  describe.each(REACT_VERSIONS)('with React %s', (react) => {
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
      expect(tab.complaints).toEqual([]);
    });
    beforeEach(async () => {
      await tab.page.evaluate('sessionStorage.clear()');
      await stage.renew(tab.page);
      await run(`test.client.signIn('${name}', '${password}').then(() => {})`);
    });
    const run = <T = unknown>(code: string) => runIn(tab.page)<T>(code);
    const shows = (selector: string, text: string) => sees(tab.page, selector, text);
    const texts = () => stage.runs.map(({ text }) => text);
    const suspends = () =>
      stage.upstream.requests.filter(({ requestLine }) => requestLine.includes('suspend')).length;

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
      expect(new Set(script.match(/(?<=")(18|19)(?=\.\d+\.\d+")/g))).toEqual(new Set([react]));
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
      expect([texts(), suspends()]).toEqual([['Hello'], 0]);
    });

    for (const ownChat of [false, true])
      test(`goes on with an answer after a reload, with a chat ${ownChat ? 'of' : 'outside of'} the component`, async () => {
        const { say, finish } = await streaming();
        await tab.page.reload();
        await run(`test.mount({ strict: true, resume: true, ownChat: ${ownChat} })`);
        await shows('.assistant', 'You');
        await shows('.status', 'streaming');
        say(' said');
        finish();
        await shows('.assistant', 'You said');
        await shows('.status', 'ready');
        expect([texts(), suspends()]).toEqual([['Hello'], 0]);
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
  });
}

/** Its answer takes more than a second, so that a busy machine draws it in several steps, too. */
const HELLO = 'Hello to all of you, and to all the others, who are not here today';
const LONG = Array.from({ length: 100 }, () => 'long').join(' ');
/** Records every text of the first answer. */
const WATCH = `
window.texts = [];
new MutationObserver(() => {
  const text = document.querySelector('li[data-from=assistant]')?.textContent ?? '';
  if (text !== (texts.at(-1) ?? '')) texts.push(text);
}).observe(document.body, { subtree: true, childList: true, characterData: true });
`;
const SIGN_IN = `fetch('/auth/login', {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: '${JSON.stringify({ username: USER.name, password: USER.password })}',
}).then(() => {})`;
const sendIn = async (page: Page, text: string) => {
  await page.getByLabel('Message').fill(text);
  await page.getByRole('button', { name: 'Send' }).click();
};

async function useHook(page: Page): Promise<void> {
  const enter = async (password: string) => {
    await page.getByLabel('Name').fill(USER.name);
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Sign in' }).click();
  };
  await enter('wrong');
  await page.getByRole('alert').filter({ hasText: 'Request: ' }).waitFor();
  await enter(USER.password);
  await page.evaluate(WATCH);
  await sendIn(page, HELLO);
  await sees(page, 'li:nth-child(2)[data-state=done]', `You said: ${HELLO}`);
  const texts = await page.evaluate<string[]>('texts');
  expect(texts.length).toBeGreaterThan(3);
  texts.forEach((text, n) => void expect(text.startsWith(texts[n - 1] ?? '')).toBe(true));
  await sendIn(page, LONG);
  await page.locator('li:nth-child(4)[data-state=streaming]').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('li:nth-child(4)[data-state=stopped]').waitFor();
  await page.getByRole('button', { name: 'Sign out ada' }).click();
  await page.getByRole('button', { name: 'Sign in' }).waitFor();
}

async function useAiSdk(page: Page): Promise<void> {
  const second = page.locator('[data-from=assistant] >> nth=1');
  const { name, password } = OTHER_USER;
  await page.evaluate(`client.signIn('${name}', '${password}').then(() => show())`);
  await sendIn(page, 'Hello to all of you');
  await sees(page, '[data-from=assistant]', 'You said: Hello to all of you');
  await sendIn(page, 'Once more and many words');
  await second.filter({ hasText: 'You said: Once' }).waitFor();
  await page.reload();
  await second.filter({ hasText: 'Once more and many words' }).waitFor();
  expect(await page.locator('[data-from]').allTextContents()).toEqual([
    ...['Hello to all of you', 'You said: Hello to all of you'],
    ...['Once more and many words', 'You said: Once more and many words'],
  ]);
  await sendIn(page, LONG);
  await page.locator('[data-from=assistant] >> nth=2').filter({ hasText: 'long' }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('button:text("Stop"):disabled').waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
  await page.evaluate('client.signOut().then(() => {})');
  await page.locator('[data-from]').first().waitFor({ state: 'detached' });
}

/** Says hello as the user does: by the button of the snippet, or by a suggestion of the chat. */
async function sayHello(page: Page): Promise<void> {
  await page.evaluate(SIGN_IN);
  await page.reload();
  await page.getByRole('button', { name: /^(Say hello|Hello)$/ }).click();
  await page.getByText('You said: Hello', { exact: true }).waitFor();
}

const mount = (component: string) => `
import { createRoot } from 'react-dom/client';
createRoot(document.getElementById('root')).render(<${component} />);
`;
const MOUNT_AI_SDK = `
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
window.client = client;
const root = createRoot(document.getElementById('root'));
window.show = () => root.render(<StrictMode><Talk /></StrictMode>);
client.session().then((session) => session && show());
`;

function documentCases(chromium: Chromium): void {
  let service: BotService;
  let relay: TestRelay;
  beforeAll(async () => {
    service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 100 }, limit: 1000 });
    relay = await startRelay(service.url, { BOTS: 'demo/echo', OPERATIONS: 'message,chat' });
  });
  afterAll(async () => {
    await relay.close();
    await service.close();
  });
  const all: [page: string, snippet: string, mount: string, use: (page: Page) => Promise<void>][] = [
    ['react', 'react', mount('App'), useHook],
    ['react', 'first-react', mount('App'), sayHello],
    ['react', 'react-chat', mount('App'), sayHello],
    ['ai-sdk', 'first-ai-sdk', mount('Talk'), sayHello],
    ['ai-sdk', 'ai-sdk', MOUNT_AI_SDK, useAiSdk],
  ];
  testSideBySide(
    all.map(([name, snippet, mount, use]) => [
      `does what they say: ${snippet}`,
      async () => {
        const document = readFileSync(new URL(`../../docs/front-end/${name}.md`, import.meta.url), 'utf8');
        const script = await bundle({ text: codeOf(document, snippet) + mount }, { react: NEWEST });
        const front = await servePage(script, relay);
        try {
          const { page, complaints } = await chromium.open(`${front.url}/`);
          await use(page);
          await page.context().close();
          expect(complaints).toEqual([]);
        } finally {
          await front.close();
        }
      },
    ]),
  );
}

const SERVER = `
  import { BotProvider, useBot, useSession } from 'bot-relay-client/react';
  import { renderToString } from 'react-dom/server';
  function Chat() {
    const bot = useBot({ initialMessages: [{ id: '1', role: 'user', parts: [], state: 'done', metadata: {} }] });
    const { session } = useSession();
    return <p>{bot.status} {String(bot.session)} {String(session)} {bot.messages.length}</p>;
  }
  show(renderToString(<BotProvider baseUrl="https://chat.example.com" namespace="acme" botProviderName="helper"><Chat /></BotProvider>));
`;

test.each(REACT_VERSIONS)(
  'on a server, useBot with React %s renders the first messages, and sends no request',
  async (react) => {
    const code = await bundle({ text: SERVER }, { react, platform: 'node' });
    const shown: string[] = [];
    const complaints: unknown[][] = [];
    const complain = (...what: unknown[]) => complaints.push(what);
    const inner = {
      require: createRequire(import.meta.url),
      show: (html: string) => shown.push(html),
      console: { ...console, error: complain, warn: complain },
      fetch: () => complain('a request'),
    };
    new Function(...Object.keys(inner), code)(...Object.values(inner));
    // A question of the session would be asked by a timer.
    await new Promise((resolve) => setTimeout(resolve, 1));
    expect(shown.map((html) => html.replaceAll('<!-- -->', ''))).toEqual([
      '<p>ready undefined undefined 1</p>',
    ]);
    expect(complaints).toEqual([]);
  },
);

describeInChromium('in a page', () => {
  const chromium = oneChromium({ keepsTabs: true });

  // Each version of React has its tab, in which one case follows the other.
  for (const react of REACT_VERSIONS) testSideBySide(hookCases(chromium, react), 1);

  describe('useBot', () => drawnCases(chromium));
  describe('useBot and useSession under Suspense', () => suspenseCases(chromium));
  describe('useChat of the AI SDK', () => chatCases(chromium));
  describe('the code of the documents', () => documentCases(chromium));
});
