import type { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { describeInChromium, oneChromium, openTab, type StrictTab } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { type Front, startFront } from '../support/front.ts';
import { CLIENT, type IdentityProviderServer, startIdentityProvider } from '../support/identity-provider.ts';
import { inFrontOf, type RelayProcess, startProcess, stopProcesses } from '../support/process.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../support/raw-upstream.ts';
import { answerWithPage, type PageWindow } from '../support/test-page.ts';

const FAILED = 'Failed to load resource: the server responded with a status of';

let front: Front;
let provider: IdentityProviderServer;
let upstream: RawUpstream;
let relay: RelayProcess;
let context: BrowserContext;
/** The page's origin. By its name it is another site than the provider, which has the same address. */
let origin: string;
/** The connections of messages that have reached the bot service, in order. */
let answering: Socket[];

/** As it is found in a page. */
declare const window: PageWindow;
declare const location: { assign(url: string): void };

describeInChromium('in a real browser', () => {
  const chromium = oneChromium();

  beforeEach(async () => {
    answering = [];
    upstream = await startRawUpstream((socket) => {
      answering.push(socket);
      socket.write(STREAM_HEAD);
    });
    front = await startFront({ answer: answerWithPage });
    origin = front.url.replace('127.0.0.1', 'localhost');
    provider = await startIdentityProvider(origin);
    await startBehindFront();
    context = await chromium.browser.newContext();
    // Before the test is given up: whoever waits says for what.
    context.setDefaultTimeout(30_000);
  });
  afterEach(async () => {
    await front.close();
    await provider.close();
    await upstream.close();
    await stopProcesses([CLIENT.secret]);
  });

  test('a user signs in, is answered word by word, and signs out (G5)', async () => {
    const { page, complaints } = await openTab(context, origin);
    await page.goto(`${origin}/`);
    expect((await sessionIn(page)).status).toBe(401);

    const back = page.waitForRequest(`${origin}/deep?x=1`);
    await beginSignIn(page, '/deep?x=1');
    await signInAs(page, 'ada');
    await page.waitForURL(`${origin}/deep?x=1`);
    // Coming from the provider's site, the browser holds the strict cookie back; the page's own requests have it.
    expect((await (await back).allHeaders()).cookie).toBeUndefined();
    expect(await sessionIn(page)).toMatchObject({ status: 200, user: { id: 'ada', name: 'Ada' } });
    expect(await context.cookies(origin)).toEqual([
      expect.objectContaining({ name: 'bot_relay_session', httpOnly: true, sameSite: 'Strict' }),
    ]);

    const over = page.evaluate(() => window.say('hello'));
    const words = ['one', 'two', 'three'];
    for (const [index, word] of words.entries()) {
      const socket = await messageAt(0);
      socket.write(chunk(`data: ${word}\n\n`));
      // Nothing more is sent before the page has it.
      await page.waitForFunction(
        (expected) => window.said.pieces.length === expected && window.said.ended === undefined,
        index + 1,
      );
    }
    answering[0]?.write(LAST_CHUNK);
    expect(await over).toEqual({
      status: 200,
      pieces: words.map((word) => `data: ${word}\n\n`),
      ended: 'complete',
    });

    const logoutUrl = await page.evaluate(async () => {
      const response = await fetch('/auth/logout', { method: 'POST' });
      return ((await response.json()) as { logoutUrl: string }).logoutUrl;
    });
    expect(new URL(logoutUrl).origin).toBe(provider.issuer);
    await page.evaluate((url) => location.assign(url), logoutUrl);
    await page.click('button[name=logout]');
    await page.waitForURL(`${origin}/`);
    expect((await page.evaluate(() => window.say('hello?'))).status).toBe(401);
    // Signed out there too: it asks who it is.
    await beginSignIn(page, '/');
    await page.waitForSelector('input[name=login]');

    expect(complaints()).toEqual([
      expect.stringMatching(`^/auth/session: ${FAILED} 401`),
      expect.stringMatching(`^/generic/.*: ${FAILED} 401`),
    ]);
    expect(upstream.requests).toHaveLength(1);
  });

  test('who signs out at the provider in one tab has no stream left in the other', async () => {
    const first = await signedIn('ada');
    const over = first.page.evaluate(() => window.say('hello'));
    (await messageAt(0)).write(chunk('data: one\n\n'));
    await first.page.waitForFunction(() => window.said.pieces.length === 1);

    const second = await openTab(context, origin);
    await second.page.goto(`${provider.issuer}/session/end`);
    await second.page.click('button[name=logout]');

    const { pieces, ended } = await over;
    expect(ended).toBe('complete');
    expect(pieces.join('')).toMatch(/^data: one\n\nevent: error\ndata: .*"code":"session_ended".*\n\n$/);
    expect((await sessionIn(first.page)).status).toBe(401);
    expect(first.complaints()).toEqual([expect.stringMatching(`^/auth/session: ${FAILED} 401`)]);
  });

  test('two tabs that begin to sign in at the same moment both end signed in', async () => {
    const tabs = await Promise.all([openTab(context, origin), openTab(context, origin)]);
    const paths = ['/one', '/two'];
    await Promise.all(tabs.map(({ page }) => page.goto(`${origin}/`)));
    await Promise.all(tabs.map(({ page }, index) => beginSignIn(page, paths[index] as string)));
    // The form of both is there before one of them is sent.
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
  });

  test('who is not allowed in can come as somebody else', async () => {
    const { page, complaints } = await openTab(context, origin);
    await page.goto(`${origin}/`);
    await beginSignIn(page, '/deep?x=1');
    await signInAs(page, 'mallory');
    await page.waitForURL(`${origin}/auth/callback?**`);
    expect(await page.textContent('h1')).toBe('Not allowed to use this');
    await look(page, 'not-allowed');
    await page.getByRole('link', { name: 'Sign in as somebody else' }).click();
    await signInAs(page, 'ada');
    await page.waitForURL(`${origin}/deep?x=1`);
    expect(await sessionIn(page)).toMatchObject({ status: 200, user: { id: 'ada' } });
    expect(complaints()).toEqual([expect.stringMatching(`^/auth/callback.*: ${FAILED} 403`)]);
  });

  test('who cancels at the provider is told so, and can try again', async () => {
    const { page, complaints } = await openTab(context, origin);
    await page.goto(`${origin}/`);
    await beginSignIn(page, '/deep?x=1');
    await page.click('text=Cancel');
    await page.waitForURL(`${origin}/auth/callback?**`);
    expect(await page.textContent('main')).toContain('The sign-in was cancelled, or');
    await look(page, 'cancelled');
    await page.getByRole('link', { name: 'Try again' }).click();
    await signInAs(page, 'ada');
    await page.waitForURL(`${origin}/deep?x=1`);
    expect(complaints()).toEqual([expect.stringMatching(`^/auth/callback.*: ${FAILED} 400`)]);
  });

  test('while the provider is down there is a page to try again from', async () => {
    const goUp = takeDown(provider);
    // One that has asked the provider at its start knows where to send the browser, whoever is there now.
    await startBehindFront();
    const { page, complaints } = await openTab(context, origin);
    await page.goto(`${origin}/`);
    await beginSignIn(page, '/deep?x=1');
    await page.waitForURL(`${origin}/auth/login?**`);
    expect(await page.textContent('h1')).toBe('Nobody can sign in right now');
    await look(page, 'provider-down');
    // The style is not kept out by the policy.
    const style = 'getComputedStyle(document.documentElement).colorScheme';
    expect(await page.evaluate(style)).toBe('light dark');
    goUp();
    await page.getByRole('link', { name: 'Try again' }).click();
    await signInAs(page, 'ada');
    await page.waitForURL(`${origin}/deep?x=1`);
    expect(complaints()).toEqual([expect.stringMatching(`^/auth/login.*: ${FAILED} 503`)]);
  });
});

/** Starts a relay that has not met the provider yet, in place of the one before. */
async function startBehindFront(): Promise<void> {
  relay = startProcess({
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
  front.leadTo(await relay.listening());
}

/** Lets the provider hang up on whoever asks it, until the function that is returned is called. */
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

/** What a script in the page learns of its session. */
function sessionIn(page: Page) {
  return page.evaluate(async () => {
    const response = await fetch('/auth/session');
    return { status: response.status, ...((await response.json()) as object) };
  });
}

/** Does what a page does to sign its user in. */
async function beginSignIn(page: Page, returnTo: string): Promise<void> {
  await page.evaluate((to) => {
    location.assign(`/auth/login?returnTo=${encodeURIComponent(to)}`);
  }, returnTo);
}

/** Fills in the provider's form, and agrees to what it asks then. */
async function signInAs(page: Page, name: string): Promise<void> {
  await page.fill('input[name=login]', name);
  await page.fill('input[name=password]', 'any');
  await page.click('button[type=submit]');
  const consent = page.locator('input[name=prompt][value=consent]');
  await Promise.race([consent.waitFor({ state: 'attached' }), page.waitForURL(`${origin}/**`)]);
  if (await consent.count()) await page.click('button[type=submit]');
}

async function signedIn(name: string): Promise<StrictTab> {
  const tab = await openTab(context, origin);
  await tab.page.goto(`${origin}/`);
  await beginSignIn(tab.page, '/');
  await signInAs(tab.page, name);
  await tab.page.waitForURL(`${origin}/`);
  return tab;
}

/** The connection of message `index`, once the bot service has it. */
async function messageAt(index: number): Promise<Socket> {
  while (answering[index] === undefined) await upstream.nextRequest();
  return answering[index] as Socket;
}

/** Keeps pictures of the page, in both colour schemes, where SCREENSHOTS names a folder. */
async function look(page: Page, name: string): Promise<void> {
  const folder = process.env.SCREENSHOTS;
  if (!folder) return;
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: `${folder}/${name}-${colorScheme}.png` });
  }
}
