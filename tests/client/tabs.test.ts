/// <reference lib="dom" />
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { bundleClient, servePage } from '../harness/browser/react-page.ts';
import {
  type ChannelStage,
  endSession,
  OTHER_USER,
  startDemoStage,
  USER,
} from '../harness/clients/channels.ts';
import { until } from '../harness/clock/until.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';

/** A page with the default channel of one client, and with a second client that nothing listens to. */
const SCRIPT = `
  import { createBotClient, createChannel, textOf } from './index.ts';
  const options = { baseUrl: '', namespace: 'demo', botProviderName: 'echo' };
  const [client, bare] = [createBotClient(options), createBotClient(options)];
  const channel = createChannel(client);
  const user = () => channel.getSnapshot().session?.user.name ?? channel.getSnapshot().session;
  const texts = () => channel.getSnapshot().messages.map(textOf);
  const json = { 'Content-Type': 'application/json' };
  const signInElsewhere = (username, password) =>
    fetch('/auth/login', { method: 'POST', headers: json, body: JSON.stringify({ username, password }) });
  const signOutElsewhere = () => fetch('/auth/logout', { method: 'POST' });
  const comeBack = () => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }));
  const becomeVisible = () => document.dispatchEvent(new Event('visibilitychange'));
  channel.subscribe(() => {});
  Object.assign(globalThis, {
    client, bare, channel, user, texts, signInElsewhere, signOutElsewhere, comeBack, becomeVisible,
  });
`;

describeInChromium('a tab', () => {
  const chromium = oneChromium();
  /** Relays that sign users in by password, and as guests. */
  let stages: ChannelStage[];
  let fronts: FakeLoadBalancer[];
  beforeAll(async () => {
    const ways = ['password', 'guest'].map((AUTH_MODE) => ({ AUTH_MODE, OPERATIONS: 'message,chat,files' }));
    stages = await Promise.all(ways.map((environment) => startDemoStage('echo', environment)));
    const script = await bundleClient(SCRIPT);
    fronts = await Promise.all(stages.map(({ relay }) => servePage(script, relay)));
  });
  afterAll(async () => {
    for (const one of [...fronts, ...stages]) await one.close();
  });

  /** A tab at one of the relays. */
  const open = (profile?: BrowserContext, at = 0) => chromium.open(`${fronts[at]?.url}/`, profile);

  const run = <T = unknown>(page: Page, code: string) => page.evaluate(code) as Promise<T>;
  const isUser = (page: Page, name: string | null) =>
    until(async () => (await run(page, 'user()')) === name, 20);
  const as = ({ name, password }: typeof USER) => `(${JSON.stringify(name)}, ${JSON.stringify(password)})`;
  const none = ".then(() => 'done')";
  const signIn = (user: typeof USER) => `client.signIn${as(user)}${none}`;
  const say = (text: string) => `channel.send('${text}').then(({ state }) => state)`;
  const HELLO = ['Hello', 'You said: Hello'];
  const shows = (page: Page, ...texts: string[]) =>
    until(async () => JSON.stringify(await run(page, 'texts()')) === JSON.stringify(texts), 20);
  const kept = '[...Object.values({ ...localStorage }), ...Object.values({ ...sessionStorage })].join()';

  /** Chromium without a window hides no tab, so the page is told so. */
  const hide = (page: Page, hidden: boolean) =>
    page.evaluate((hidden) => {
      const visibilityState = hidden ? 'hidden' : 'visible';
      for (const [name, value] of Object.entries({ hidden, visibilityState }))
        Object.defineProperty(document, name, { value, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);

  /** A tab in which `USER` has said something. */
  async function said() {
    const { page } = await open();
    await isUser(page, null);
    await run(page, signIn(USER));
    await isUser(page, USER.name);
    await run(page, say('secret'));
    await shows(page, 'secret', 'You said: secret');
    return page;
  }

  test('shows nothing of its user when another one has come back from the identity provider in a second tab', async () => {
    const page = await said();
    const second = await open(page.context());
    await isUser(second.page, USER.name);
    // As with AUTH_MODE=oidc: the session is another one after a load of the page.
    await run(second.page, `signInElsewhere${as(OTHER_USER)}${none}`);
    await second.page.reload();
    await isUser(second.page, OTHER_USER.name);
    await isUser(page, OTHER_USER.name);
    expect(await run(page, 'texts()')).toEqual([]);
  });

  test('asks again when it becomes visible', async () => {
    const page = await said();
    await run(page, `signInElsewhere${as(OTHER_USER)}${none}`);
    await run(page, 'becomeVisible()');
    await isUser(page, OTHER_USER.name);
    expect(await run(page, 'texts()')).toEqual([]);
  });

  test('that stays visible asks when its session should have ended, and a hidden one does not', async () => {
    const { page } = await open();
    await isUser(page, null);
    await page.clock.install();
    let asked = 0;
    page.on('request', (request) => {
      asked += Number(request.url().endsWith('/auth/session'));
    });
    const session = await run<{ idleExpiresAt: string }>(page, `client.signIn${as(USER)}`);
    await isUser(page, USER.name);
    asked = 0;
    const rest = Date.parse(session.idleExpiresAt) - (await run<number>(page, 'Date.now()'));
    // The page sets its next timer when it has the answer, and not when it asks.
    const answered = () => page.waitForResponse('**/auth/session').then((response) => response.finished());
    await page.clock.fastForward(rest - 5_000);
    expect(asked).toBe(0);
    const first = answered();
    await page.clock.fastForward(7_000);
    await first;
    expect(asked).toBe(1);
    // The relay has said that the session goes on, so it is asked again, but not at once.
    await page.clock.fastForward(20_000);
    expect([asked, await run(page, 'user()')]).toEqual([1, USER.name]);
    await hide(page, true);
    await page.clock.fastForward(rest);
    expect(asked).toBe(1);
    const second = answered();
    await hide(page, false);
    await second;
    expect(asked).toBe(2);
    await run(page, `signOutElsewhere()${none}`);
    await page.clock.fastForward(rest);
    await isUser(page, null);
    expect(asked).toBe(3);
  });

  test('still shows its user when it becomes visible without a network', async () => {
    const page = await said();
    await page.context().setOffline(true);
    const failed = page.waitForEvent('requestfailed');
    await run(page, 'globalThis.seen = []; channel.subscribe(() => seen.push(user())); becomeVisible()');
    await failed;
    await page.context().setOffline(false);
    const answered = page.waitForResponse('**/auth/session');
    await run(page, 'becomeVisible()');
    await answered;
    expect(await run(page, `[...seen, user()].every((one) => one === '${USER.name}')`)).toBe(true);
  });

  test('that comes back from the back/forward cache after a sign-out is emptied', async () => {
    const page = await said();
    await run(page, `signOutElsewhere()${none}`);
    await run(page, 'comeBack()');
    await isUser(page, null);
    expect(await run(page, 'texts()')).toEqual([]);
    expect(await run(page, kept)).toBe('');
  });

  test('agrees with another one on who is signed in, and a sign-out in one empties the other', async () => {
    const one = await open();
    await isUser(one.page, null);
    const two = await open(one.page.context());
    await isUser(two.page, null);
    await run(one.page, signIn(USER));
    await isUser(two.page, USER.name);
    expect(await run(two.page, say('Hello'))).toBe('done');
    await run(two.page, "void channel.send('word '.repeat(500))");
    await until(async () => (await run(two.page, 'texts().length')) === 4, 20);
    // By a client that nothing listens to.
    await run(one.page, `bare.signOut()${none}`);
    await isUser(two.page, null);
    // The end of its stream may have told this tab first that the session is over.
    await shows(two.page);
    for (const { page } of [one, two]) await until(async () => (await run(page, kept)) === '', 20);
    await run(one.page, `bare.signIn${as(OTHER_USER)}${none}`);
    await isUser(two.page, OTHER_USER.name);
    expect(await run(two.page, 'texts()')).toEqual([]);
    for (const { complaints } of [one, two]) expect(complaints).toEqual([]);
  });

  test('shows a user the same default channel after a reload, and nothing of it to another one', async () => {
    const { page, complaints } = await open();
    await isUser(page, null);
    await run(page, signIn(USER));
    await run(page, say('Hello'));
    const id = await run<string>(page, 'channel.id');
    await page.reload();
    await shows(page, ...HELLO);
    expect(await run(page, 'channel.id')).toBe(id);
    // Without a sign-out, as when a session has ended.
    await page.context().clearCookies();
    await page.reload();
    await isUser(page, null);
    expect(await run(page, 'texts()')).toEqual([]);
    await run(page, signIn(OTHER_USER));
    await isUser(page, OTHER_USER.name);
    await until(() => run<boolean>(page, '!channel.getSnapshot().isLoading'), 20);
    expect(await run(page, 'texts()')).toEqual([]);
    expect(await run(page, 'channel.id')).not.toBe(id);
    expect(await run(page, kept)).not.toContain(id);
    expect(complaints).toEqual([]);
  });

  test('shows what its user says in another tab, as it comes', async () => {
    const page = await said();
    const { page: second, complaints } = await open(page.context());
    await shows(second, 'secret', 'You said: secret');
    await until(() => run<boolean>(second, '!channel.getSnapshot().isLoading'), 20);
    // What tabs tell each other is kept.
    await run(
      second,
      `globalThis.told = [];
      new BroadcastChannel('bot-relay-messages ' + new URL('/', location.href)).onmessage = ({ data }) => told.push(data)`,
    );
    const last = 'channel.getSnapshot().messages.at(-1).state';
    await run(page, "void channel.send('shared '.repeat(500))");
    await until(async () => (await run(second, last)) === 'streaming', 20);
    await run(page, 'channel.stop()');
    for (const tab of [page, second]) await until(async () => (await run(tab, last)) === 'stopped', 20);
    expect(await run(second, 'texts().length')).toBe(4);
    // And in the other direction.
    await run(second, say('back'));
    await until(async () => String(await run(page, 'texts().slice(4)')) === 'back,You said: back', 20);
    await until(() => run<boolean>(second, 'told.length > 0'), 20);
    expect(await run(second, 'JSON.stringify(told)')).not.toMatch(/shared/);
    expect(complaints).toEqual([]);
  });

  test('keeps the channel of a guest for itself', async () => {
    const { page, complaints } = await open(undefined, 1);
    await isUser(page, null);
    await run(page, 'client.signInAsGuest().then(() => {})');
    await run(page, say('Hello'));
    expect(await run(page, 'localStorage.length')).toBe(0);
    await page.reload();
    await shows(page, ...HELLO);
    expect(complaints).toEqual([]);
  });

  test('uploads a file also if the answer has a header without a value', async () => {
    const { page } = await open();
    await isUser(page, null);
    await run(page, signIn(USER));
    const answer = { contentType: 'application/json', body: '{"data":[{"blobId":"blob"}]}' };
    await page.route('**/blob', (route) => route.fulfill({ ...answer, headers: { 'x-zz': '' } }));
    const upload = "channel.upload(new File(['text'], 'a.txt'), { onProgress() {} })";
    expect(await run(page, `${upload}.then((file) => file?.filename)`)).toBe('a.txt');
  });

  test('tells how much of a file has left, and why it was refused', async () => {
    const { page } = await open();
    await isUser(page, null);
    await run(page, signIn(USER));
    const upload = (size: number) =>
      `(async () => {
        const parts = [];
        const file = await channel.upload(new File([new Uint8Array(${size})], 'a.bin'), { onProgress: (part) => parts.push(part) });
        return { parts, name: file?.filename, error: channel.getSnapshot().error?.code };
      })()`;
    const network = await page.context().newCDPSession(page);
    const slow = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 2_000_000 };
    await network.send('Network.emulateNetworkConditions', slow);
    const { parts, name } = await run<{ parts: number[]; name: string }>(page, upload(1_000_000));
    expect(name).toBe('a.bin');
    expect(parts.some((part) => part > 0 && part < 1)).toBe(true);
    expect(parts).toEqual([...parts].sort((a, b) => a - b));
    expect([parts.at(-1), parts.every((part) => part >= 0 && part <= 1)]).toEqual([1, true]);
    await endSession((stages[0] as ChannelStage).relay);
    expect((await run<{ name?: string }>(page, upload(10))).name).toBeUndefined();
    const error = () => run<object>(page, '({ ...channel.getSnapshot().error })');
    await until(async () => 'code' in (await error()), 20);
    expect(await error()).toMatchObject({
      code: 'unauthenticated',
      status: 401,
      requestId: expect.any(String),
    });
    await isUser(page, null);
  });
});
