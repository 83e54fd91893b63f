import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { describeInChromium, oneChromium, openTab, type StrictTab } from '../harness/browser/chromium.ts';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { inFrontOf, type RelayProcess, startProcess, stopProcesses } from '../harness/relay/process.ts';
import {
  FAKE_CLIENT,
  type FakeProvider,
  PATHS,
  signInAt,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  startIdentityProvider,
} from '../harness/service/identity-provider.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

/** What the page records of a message that it has sent: each piece as it was read, and how it ended. */
interface Said {
  readonly pieces: string[];
  status?: number;
  ended?: 'complete' | 'broken';
}

/** The functions and values in the `window` of the page. */
interface PageWindow {
  /** Sends a message; resolves when its answer is over. */
  say(text: string): Promise<Said>;
  /** The message that was sent last. */
  said: Said;
}

const PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>The page</title>
<h1>The page</h1>
<script>
async function say(text) {
  const said = { pieces: [] };
  window.said = said;
  const response = await fetch('/generic/ns/acme/bot-provider/helper/message/sse', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ text }),
  });
  said.status = response.status;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) said.pieces.push(next.value);
    said.ended = 'complete';
  } catch {
    said.ended = 'broken';
  }
  return said;
}
</script>
</html>
`;

/** Answers with the page at every path that is not the relay's. Returns whether it did. */
function answerWithPage({ url = '' }: IncomingMessage, res: ServerResponse): boolean {
  if (/^\/(auth|generic)\//.test(url)) return false;
  if (url === '/favicon.ico') res.writeHead(204).end();
  else res.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(PAGE);
  return true;
}

const FAILED = 'Failed to load resource: the server responded with a status of';

let front: FakeLoadBalancer;
let provider: IdentityProviderServer;
let upstream: RawUpstream;
/** The page's origin. Its name makes it another site than the provider, which has the same address. */
let origin: string;
/** The connections of messages that have reached the bot service, by their text. */
const answering = new Map<string, Socket>();

/** The part of a page that the tests use. */
declare const window: PageWindow;
declare const location: { assign(url: string): void };

async function isAnsweredWordByWord(page: Page): Promise<void> {
  const over = page.evaluate(() => window.say('hello'));
  const words = ['one', 'two', 'three'];
  for (const [index, word] of words.entries()) {
    const socket = await messageSaying('hello');
    socket.write(chunk(`data: ${word}\n\n`));
    // The next event is sent only after the page has this one.
    await page.waitForFunction(
      (expected) => window.said.pieces.length === expected && window.said.ended === undefined,
      index + 1,
    );
  }
  answering.get('hello')?.write(LAST_CHUNK);
  expect(await over).toEqual({
    status: 200,
    pieces: words.map((word) => `data: ${word}\n\n`),
    ended: 'complete',
  });
}

async function signsInAndOut(context: BrowserContext): Promise<void> {
  const { page, complaints } = await openTab(context, origin);
  await page.goto(`${origin}/`);
  expect(await sessionIn(page)).toEqual({ status: 200, user: null });

  const back = page.waitForRequest(`${origin}/deep?x=1`);
  await beginSignIn(page, '/deep?x=1');
  await signInAs(page, 'ada');
  await page.waitForURL(`${origin}/deep?x=1`);
  // Coming from the provider's site, the browser does not send the strict cookie. The page's own requests send it.
  expect((await (await back).allHeaders()).cookie).toBeUndefined();
  expect(await sessionIn(page)).toMatchObject({ status: 200, user: { id: 'ada', name: 'Ada' } });
  expect(await context.cookies(origin)).toEqual([
    expect.objectContaining({ name: 'bot_relay_session', httpOnly: true, sameSite: 'Strict' }),
  ]);

  await isAnsweredWordByWord(page);

  const logoutUrl = await page.evaluate(async () => {
    const response = await fetch('/auth/logout', { method: 'POST' });
    return ((await response.json()) as { logoutUrl: string }).logoutUrl;
  });
  expect(new URL(logoutUrl).origin).toBe(provider.issuer);
  await page.evaluate((url) => location.assign(url), logoutUrl);
  await page.click('button[name=logout]');
  await page.waitForURL(`${origin}/`);
  expect((await page.evaluate(() => window.say('hello?'))).status).toBe(401);
  // The user is signed out there too, so the provider shows its form.
  await beginSignIn(page, '/');
  await page.waitForSelector('input[name=login]');

  expect(complaints()).toEqual([expect.stringMatching(`^/generic/.*: ${FAILED} 401`)]);
  expect(upstream.requests.filter(({ body }) => body.includes('hello'))).toHaveLength(1);
}

async function signsOutElsewhere(context: BrowserContext): Promise<void> {
  const first = await signedIn(context, 'ada');
  const over = first.page.evaluate(() => window.say('still there'));
  (await messageSaying('still there')).write(chunk('data: one\n\n'));
  await first.page.waitForFunction(() => window.said.pieces.length === 1);

  const second = await openTab(context, origin);
  await second.page.goto(`${provider.issuer}/session/end`);
  await second.page.click('button[name=logout]');

  const { pieces, ended } = await over;
  expect(ended).toBe('complete');
  expect(pieces.join('')).toMatch(/^data: one\n\nevent: error\ndata: .*"code":"session_ended".*\n\n$/);
  expect(await sessionIn(first.page)).toEqual({ status: 200, user: null });
  expect(first.complaints()).toEqual([]);
}

async function signsInTwice(context: BrowserContext): Promise<void> {
  const tabs = await Promise.all([openTab(context, origin), openTab(context, origin)]);
  const paths = ['/one', '/two'];
  await Promise.all(tabs.map(({ page }) => page.goto(`${origin}/`)));
  await Promise.all(tabs.map(({ page }, index) => beginSignIn(page, paths[index] as string)));
  // Both forms are open before the first one is sent.
  await Promise.all(tabs.map(({ page }) => page.waitForSelector('input[name=login]')));
  for (const [index, { page }] of tabs.entries()) {
    await signInAs(page, 'ada');
    await page.waitForURL(origin + paths[index]);
  }
  for (const { page, complaints } of tabs) {
    expect(await sessionIn(page)).toMatchObject({ status: 200, user: { id: 'ada' } });
    expect(complaints()).toEqual([]);
  }
  expect((await context.cookies(origin)).map(({ name }) => name)).toEqual(['bot_relay_session']);
}

async function isNotAllowed(context: BrowserContext): Promise<void> {
  const { page, complaints } = await openTab(context, origin);
  await page.goto(`${origin}/`);
  await beginSignIn(page, '/deep?x=1');
  await signInAs(page, 'mallory');
  await page.waitForURL(`${origin}/auth/callback?**`);
  expect(await page.textContent('h1')).toBe('Not allowed to use this');
  await page.getByRole('link', { name: 'Sign in as somebody else' }).click();
  await signInAs(page, 'ada');
  await page.waitForURL(`${origin}/deep?x=1`);
  expect(await sessionIn(page)).toMatchObject({ status: 200, user: { id: 'ada' } });
  expect(complaints()).toEqual([expect.stringMatching(`^/auth/callback.*: ${FAILED} 403`)]);
}

async function cancels(context: BrowserContext): Promise<void> {
  const { page, complaints } = await openTab(context, origin);
  await page.goto(`${origin}/`);
  await beginSignIn(page, '/deep?x=1');
  await page.click('text=Cancel');
  await page.waitForURL(`${origin}/auth/callback?**`);
  expect(await page.textContent('main')).toContain('The sign-in was cancelled, or');
  await page.getByRole('link', { name: 'Try again' }).click();
  await signInAs(page, 'ada');
  await page.waitForURL(`${origin}/deep?x=1`);
  expect(complaints()).toEqual([expect.stringMatching(`^/auth/callback.*: ${FAILED} 400`)]);
}

async function providerIsDown(context: BrowserContext): Promise<void> {
  const goUp = takeDown(provider);
  // A relay that has found the provider at its start still redirects the browser there.
  await startBehindFront();
  const { page, complaints } = await openTab(context, origin);
  await page.goto(`${origin}/`);
  await beginSignIn(page, '/deep?x=1');
  await page.waitForURL(`${origin}/auth/login?**`);
  expect(await page.textContent('h1')).toBe('Sign-in is not available right now');
  // The content security policy allows the style.
  const style = 'getComputedStyle(document.documentElement).colorScheme';
  expect(await page.evaluate(style)).toBe('light dark');
  goUp();
  await page.getByRole('link', { name: 'Try again' }).click();
  await signInAs(page, 'ada');
  await page.waitForURL(`${origin}/deep?x=1`);
  expect(complaints()).toEqual([expect.stringMatching(`^/auth/login.*: ${FAILED} 503`)]);
}

describeInChromium('in a real browser', () => {
  const chromium = oneChromium({ keepsTabs: true });
  const inContext = (run: (context: BrowserContext) => Promise<void>) => async () => {
    const context = await chromium.browser.newContext();
    // Shorter than the limit of a test, so that the error says what was awaited.
    context.setDefaultTimeout(60_000);
    await run(context).finally(() => context.close());
  };

  beforeAll(async () => {
    upstream = await startRawUpstream((socket, { body }) => {
      answering.set((JSON.parse(body.toString()) as { text: string }).text, socket);
      socket.write(STREAM_HEAD);
    });
    front = await startFakeLoadBalancer({ answer: answerWithPage });
    origin = front.url.replace('127.0.0.1', 'localhost');
    provider = await startIdentityProvider(origin);
    await startBehindFront();
  });
  afterAll(async () => {
    await front.close();
    await provider.close();
    await upstream.close();
    await stopProcesses([CLIENT.secret]);
  });

  testSideBySide(
    [
      ['a user signs in, is answered word by word, and signs out', inContext(signsInAndOut)],
      [
        'a user who signs out at the provider in one tab loses the stream in the other',
        inContext(signsOutElsewhere),
      ],
      ['two tabs that begin to sign in at the same time are both signed in', inContext(signsInTwice)],
      ['a user who is not allowed in can sign in as another user', inContext(isNotAllowed)],
      ['a user who cancels at the provider sees this, and can try again', inContext(cancels)],
    ],
    3,
  );

  // It runs alone, since it needs the provider and the relay for itself.
  test('while the provider is down, a page offers to try again', inContext(providerIsDown));
});

/** Replaces the relay by a new one that has not found the provider yet. */
async function startBehindFront(): Promise<void> {
  const relay = startProcess({
    environment: {
      ...inFrontOf(upstream.url),
      PORT: String(await freePort()),
      PUBLIC_URL: origin,
      TRUST_PROXY: '1',
      AUTH_MODE: 'oidc',
      OIDC_ISSUER: provider.issuer,
      OIDC_CLIENT_ID: CLIENT.id,
      OIDC_CLIENT_SECRET: CLIENT.secret,
      OIDC_SCOPES: 'openid profile groups',
      OIDC_REQUIRED_CLAIM: 'groups:chat-users',
    },
  });
  front.forwardTo(await relay.listening());
}

/** Makes the provider reset every connection until the returned function is called. */
function takeDown({ provider: app }: IdentityProviderServer): () => void {
  let isDown = true;
  const createContext = app.createContext.bind(app);
  app.createContext = (req, res) => {
    if (isDown) req.socket.destroy();
    return createContext(req, res);
  };
  return () => {
    isDown = false;
  };
}

/** The session as a script in the page sees it. */
function sessionIn(page: Page) {
  return page.evaluate(async () => {
    const response = await fetch('/auth/session');
    return { status: response.status, ...((await response.json()) as object) };
  });
}

/** Starts a sign-in as a page does. */
async function beginSignIn(page: Page, returnTo: string): Promise<void> {
  await page.evaluate((to) => {
    location.assign(`/auth/login?returnTo=${encodeURIComponent(to)}`);
  }, returnTo);
}

/** Fills in the provider's form, and consents. */
async function signInAs(page: Page, name: string): Promise<void> {
  await page.fill('input[name=login]', name);
  await page.fill('input[name=password]', 'any');
  await page.click('button[type=submit]');
  const consent = page.locator('input[name=prompt][value=consent]');
  await Promise.race([consent.waitFor({ state: 'attached' }), page.waitForURL(`${origin}/**`)]);
  if (await consent.count()) await page.click('button[type=submit]');
}

async function signedIn(context: BrowserContext, name: string): Promise<StrictTab> {
  const tab = await openTab(context, origin);
  await tab.page.goto(`${origin}/`);
  await beginSignIn(tab.page, '/');
  await signInAs(tab.page, name);
  await tab.page.waitForURL(`${origin}/`);
  return tab;
}

/** Resolves with the connection of a message at the bot service. */
async function messageSaying(text: string): Promise<Socket> {
  await until(() => answering.has(text));
  return answering.get(text) as Socket;
}

const providers: FakeProvider[] = [];
afterAll(async () => {
  for (const provider of providers) await provider.close();
  await stopProcesses([FAKE_CLIENT.secret]);
});

async function startProvider(): Promise<FakeProvider> {
  const provider = await startFakeProvider();
  providers.push(provider);
  return provider;
}

const start = (issuer: string) =>
  startProcess({
    environment: {
      ...inFrontOf('http://127.0.0.1:9'),
      PUBLIC_URL: 'https://chat.example.com',
      ...signInAt(issuer),
    },
  });
const linesOf = (relay: RelayProcess) =>
  relay
    .stdout()
    .split('\n')
    .filter((line) => line.includes('identity provider'))
    .map((line) => JSON.parse(line));

async function providerIsFound(): Promise<void> {
  const provider = await startProvider();
  const relay = start(provider.issuer);
  const [line] = await relay.waitFor(/\{.*"msg":"listening"\}/);
  expect(JSON.parse(line)).toMatchObject({ authMode: 'oidc', publicUrl: 'https://chat.example.com' });
  await relay.waitFor(/"msg":"identity provider discovered"/);
  expect(linesOf(relay)).toEqual([
    expect.objectContaining({ level: 'info', issuer: provider.issuer, msg: 'identity provider discovered' }),
  ]);
  expect(provider.requests.map(({ path }) => path)).toEqual([PATHS.metadata]);
}

async function doesNotWait(): Promise<void> {
  const provider = await startProvider();
  let held: ServerResponse | undefined;
  const asked = new Promise<void>((resolve) => {
    provider.answers[`/realms/staff${PATHS.metadata}`] = (_req, res) => {
      held = res;
      resolve();
    };
  });
  const relay = start(`${provider.issuer}/realms/staff`);
  const port = await relay.listening();
  await asked;
  expect((await call(port, '/readyz')).status).toBe(200);
  expect(linesOf(relay)).toEqual([]);
  held?.writeHead(503).end();
  await relay.waitFor(/"msg":"identity provider not discovered"/);
  // Without its path.
  expect(linesOf(relay)).toEqual([
    expect.objectContaining({ level: 'error', issuer: provider.issuer, cause: 'HTTP_503' }),
  ]);
  expect((await call(port, '/readyz')).status).toBe(200);
  expect(relay.stderr()).toBe('');
}

describe('the start of a relay whose users sign in at an identity provider', () => {
  testSideBySide([
    ['logs where it listens, for which origin, and that the provider is found', providerIsFound],
    ['does not wait for the provider, logs that it is not found, and goes on', doesNotWait],
  ]);
});
