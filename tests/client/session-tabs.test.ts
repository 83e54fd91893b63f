/// <reference lib="dom" />
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { servePage } from '../harness/browser/react-page.ts';
import { type ChannelStage, OTHER_USER, startDemoStage, USER } from '../harness/clients/channels.ts';
import { until } from '../harness/clock/until.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';

/** A page with a channel of one client, and with a second client that nothing listens to. */
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

function pageScript(): string {
  const resolveDir = fileURLToPath(new URL('../../src/client', import.meta.url));
  const stdin = { contents: SCRIPT, resolveDir };
  const { outputFiles } = buildSync({ stdin, bundle: true, format: 'esm', write: false });
  return outputFiles[0]?.text ?? '';
}

describeInChromium('a tab', () => {
  const chromium = oneChromium();
  let stage: ChannelStage;
  let front: FakeLoadBalancer;
  beforeAll(async () => {
    stage = await startDemoStage('echo', { OPERATIONS: 'message' });
    front = await servePage(pageScript(), stage.relay);
  });
  afterAll(async () => {
    await front.close();
    await stage.close();
  });

  const run = <T = unknown>(page: Page, code: string) => page.evaluate(code) as Promise<T>;
  const isUser = (page: Page, name: string | null) =>
    until(async () => (await run(page, 'user()')) === name, 20);
  const as = ({ name, password }: typeof USER) => `(${JSON.stringify(name)}, ${JSON.stringify(password)})`;
  const none = ".then(() => 'done')";
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
    const { page } = await chromium.open(`${front.url}/`);
    await isUser(page, null);
    await run(page, `client.signIn${as(USER)}${none}`);
    await isUser(page, USER.name);
    await run(page, `channel.send('secret')${none}`);
    await until(async () => (await run<string[]>(page, 'texts()')).length === 2, 20);
    return page;
  }

  test('shows nothing of its user when another one has come back from the identity provider in a second tab', async () => {
    const page = await said();
    const second = await chromium.open(`${front.url}/`, page.context());
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
    const { page } = await chromium.open(`${front.url}/`);
    await isUser(page, null);
    await page.clock.install();
    let asked = 0;
    page.on('request', (request) => {
      asked += Number(request.url().endsWith('/auth/session'));
    });
    const session = await run<{ idleExpiresAt: string }>(page, `client.signIn${as(USER)}`);
    await isUser(page, USER.name);
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

  test('is told of a sign-in and a sign-out by a client that nothing listens to', async () => {
    const page = await said();
    const second = await chromium.open(`${front.url}/`, page.context());
    await isUser(second.page, USER.name);
    await run(second.page, `bare.signOut()${none}`);
    await isUser(page, null);
    expect(await run(page, 'texts()')).toEqual([]);
    await run(second.page, `bare.signIn${as(OTHER_USER)}${none}`);
    await isUser(page, OTHER_USER.name);
  });
});
