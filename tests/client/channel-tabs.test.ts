import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { servePage } from '../harness/browser/react-page.ts';
import { type ChannelStage, OTHER_USER, startDemoStage, USER } from '../harness/clients/channels.ts';
import { until } from '../harness/clock/until.ts';
import type { FakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';

/** A page with a client of its own origin, and its default channel. */
const SCRIPT = `
  import { createBotClient, createChannel, textOf } from './index.ts';
  const client = createBotClient({ baseUrl: '', namespace: 'demo', botProviderName: 'echo' });
  const channel = createChannel(client);
  const user = () => channel.getSnapshot().session?.user.name ?? channel.getSnapshot().session;
  const texts = () => channel.getSnapshot().messages.map(textOf);
  channel.subscribe(() => {});
  Object.assign(globalThis, { client, channel, user, texts });
`;

function pageScript(): string {
  const resolveDir = fileURLToPath(new URL('../../src/client', import.meta.url));
  const stdin = { contents: SCRIPT, resolveDir };
  const { outputFiles } = buildSync({ stdin, bundle: true, format: 'esm', write: false });
  return outputFiles[0]?.text ?? '';
}

describeInChromium('channels in the tabs of one browser', () => {
  const chromium = oneChromium({ keepsTabs: true });
  let stage: ChannelStage;
  let guests: ChannelStage;
  let fronts: FakeLoadBalancer[];
  beforeAll(async () => {
    const environment = { OPERATIONS: 'message,chat,files' };
    [stage, guests] = await Promise.all([
      startDemoStage('echo', environment),
      startDemoStage('echo', { ...environment, AUTH_MODE: 'guest' }),
    ]);
    fronts = await Promise.all([stage, guests].map(({ relay }) => servePage(pageScript(), relay)));
  });
  afterAll(async () => {
    for (const front of fronts) await front.close();
    await stage.close();
    await guests.close();
  });

  const open = (profile?: Parameters<typeof chromium.open>[1], at = 0) =>
    chromium.open(`${fronts[at]?.url}/`, profile);
  const run = <T = unknown>(page: Page, code: string) => page.evaluate(code) as Promise<T>;
  const isUser = (page: Page, name: string | null) =>
    until(async () => (await run(page, 'user()')) === name, 20);
  const signIn = ({ name, password }: typeof USER) =>
    `client.signIn(${JSON.stringify(name)}, ${JSON.stringify(password)}).then(() => {})`;
  const say = (text: string) => `channel.send('${text}').then(({ state }) => state)`;
  const kept = '[...Object.values({ ...localStorage }), ...Object.values({ ...sessionStorage })].join()';

  test('agree on who is signed in, and a sign-out in one empties the other', async () => {
    const one = await open();
    await isUser(one.page, null);
    const two = await open(one.page.context());
    await isUser(two.page, null);
    await run(one.page, signIn(USER));
    await isUser(two.page, USER.name);
    expect(await run(two.page, say('Hello'))).toBe('done');
    await run(two.page, "void channel.send('word '.repeat(500))");
    await until(async () => (await run<string[]>(two.page, 'texts()')).length === 4, 20);
    await run(one.page, 'client.signOut().then(() => {})');
    await isUser(two.page, null);
    // The end of its stream may have told this tab first that the session is over.
    await until(async () => (await run<string[]>(two.page, 'texts()')).length === 0, 20);
    for (const { page, complaints } of [one, two]) {
      await until(async () => (await run(page, kept)) === '', 20);
      expect(complaints).toEqual([]);
    }
    await one.page.context().close();
  });

  test('show a user the same default channel after a reload, and nothing of it to another one', async () => {
    const { page, complaints } = await open();
    await isUser(page, null);
    await run(page, signIn(USER));
    await run(page, say('Hello'));
    const id = await run<string>(page, 'channel.id');
    await page.reload();
    await until(async () => (await run<string[]>(page, 'texts()')).length === 2, 20);
    expect(await run(page, 'texts()')).toEqual(['Hello', 'You said: Hello']);
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
    await page.context().close();
  });

  test('keep the channel of a guest in the tab', async () => {
    const { page, complaints } = await open(undefined, 1);
    await isUser(page, null);
    await run(page, 'client.signInAsGuest().then(() => {})');
    await run(page, say('Hello'));
    expect(await run(page, 'localStorage.length')).toBe(0);
    await page.reload();
    await until(async () => (await run<string[]>(page, 'texts()')).length === 2, 20);
    expect(complaints).toEqual([]);
    await page.context().close();
  });

  test('upload a file also if the answer has a header without a value', async () => {
    const { page } = await open();
    await isUser(page, null);
    await run(page, signIn(USER));
    const answer = { contentType: 'application/json', body: '{"data":[{"blobId":"blob"}]}' };
    await page.route('**/blob', (route) => route.fulfill({ ...answer, headers: { 'x-zz': '' } }));
    const upload = "channel.upload(new File(['text'], 'a.txt'), { onProgress() {} })";
    expect(await run(page, `${upload}.then((file) => file?.filename)`)).toBe('a.txt');
    await page.context().close();
  });

  test('tell how much of a file has left, and why it was refused', async () => {
    const { page, complaints } = await open();
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
    await fetch(`${stage.relay.url}/auth/logout-all`, {
      method: 'POST',
      headers: { Cookie: await stage.relay.signIn() },
    });
    expect((await run<{ name?: string }>(page, upload(10))).name).toBeUndefined();
    const error = () => run<object>(page, '({ ...channel.getSnapshot().error })');
    await until(async () => 'code' in (await error()), 20);
    expect(await error()).toMatchObject({
      code: 'unauthenticated',
      status: 401,
      requestId: expect.any(String),
    });
    await isUser(page, null);
    // The browser itself complains of the 401.
    complaints.length = 0;
    await page.context().close();
  });
});
