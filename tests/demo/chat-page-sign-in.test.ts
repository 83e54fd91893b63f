import { afterAll, beforeAll, expect } from '@jest/globals';
import { lastAnswer, openChat, say, signIn, startDemoRelay } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { CLIENT, startIdentityProvider } from '../support/identity-provider.ts';
import { type RelayProcess, stopProcesses } from '../support/process.ts';
import { testSideBySide } from '../support/side-by-side.ts';

/** The relay of all cases that need no settings of their own. It starts together with Chromium. */
let demo: RelayProcess;
beforeAll(() => {
  demo = startDemoRelay({ BOTS: 'demo/*', LOGIN_MAX_FAILURES: '1' });
});
const chromium = oneChromium({ keepsTabs: true });
afterAll(() => stopProcesses());

describeInChromium('signing in at the chat page', () => {
  testSideBySide(
    [
      [
        'at an OpenID provider returns to the conversation',
        async () => {
          const port = await freePort();
          const provider = await startIdentityProvider(`http://localhost:${port}`);
          try {
            const { page, profile, complaints } = await openChat(chromium, {
              PORT: String(port),
              AUTH_MODE: 'oidc',
              OIDC_ISSUER: provider.issuer,
              OIDC_CLIENT_ID: CLIENT.id,
              OIDC_CLIENT_SECRET: CLIENT.secret,
            });
            const link = page.getByRole('link', { name: 'Sign in at your provider' });
            await link.click();
            await page.locator('input[name=login]').fill('ada');
            await page.locator('input[name=password]').fill('any');
            await page.locator('button[type=submit]').click();
            await page.locator('button[type=submit]').click();
            await page.locator('body[data-session=in]').waitFor();
            expect(new URL(page.url()).pathname).toBe('/');
            expect(await page.locator('#user').textContent()).toBe('Ada');
            await say(page, 'Hello');
            await lastAnswer(page, 'done');
            await page.locator('#text').fill('A draft');
            await profile.clearCookies({ domain: 'localhost' });
            await page.locator('#text').press('Enter');
            await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
            await page.locator('#text').fill('Another draft');
            // The user is still signed in at the provider.
            await link.click();
            await page.locator('body[data-session=in]').waitFor();
            expect(await page.locator('.answer .text').first().textContent()).toBe('You said: Hello');
            expect(await page.locator('.answer').count()).toBe(2);
            expect(await page.locator('#text').inputValue()).toBe('Another draft');
            await say(page, 'On we go');
            await page.locator('.answer:last-child[data-state=done]', { hasText: 'On we go' }).waitFor();
            await page.getByRole('button', { name: 'Sign out' }).click();
            await page.waitForURL(`${provider.issuer}/**`);
            // The provider's own pages request an icon and a web font.
            const own = complaints.filter((one) => !one.includes(provider.issuer) && !one.includes('fonts.'));
            expect(own).toEqual([]);
          } finally {
            await provider.close();
          }
        },
      ],
      [
        'shows one user nothing of the conversation of another, and does not go on in it, whatever the bot',
        async () => {
          const { page } = await openChat(chromium, demo);
          const channels: string[] = [];
          page.on('request', (request) => {
            if (request.url().endsWith('/sse')) channels.push(request.postDataJSON().customChannelId);
          });
          const signOut = async () => {
            await page.getByRole('button', { name: 'Sign out' }).click();
            await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
          };
          await signIn(page);
          await page.getByLabel('Bot').selectOption('demo/steps');
          await say(page, 'A secret');
          // The answer is over, so the bot's client does not learn that the session has ended.
          await lastAnswer(page, 'failed');
          await page.locator('#text').fill('A draft');
          await signOut();
          await signIn(page);
          // The same user sees the conversation again.
          expect(await page.locator('.question').count()).toBe(1);
          expect(await page.locator('#text').inputValue()).toBe('A draft');
          await signOut();
          const later = new Date(Date.now() + 60_000).toISOString();
          const json = { user: { id: 'eve', name: 'Eve' }, idleExpiresAt: later, absoluteExpiresAt: later };
          await page.route('**/auth/login', (route) => route.fulfill({ json }));
          await signIn(page);
          expect(await page.locator('#user').textContent()).toBe('Eve');
          expect(await page.locator('#messages').textContent()).toBe('');
          expect(await page.locator('#live').textContent()).not.toContain('secret');
          expect(await page.locator('#text').inputValue()).toBe('');
          await say(page, 'Hello');
          // The relay does not know Eve.
          await lastAnswer(page, 'failed');
          expect(channels).toHaveLength(2);
          expect(channels[1]).not.toBe(channels[0]);
        },
      ],
      [
        'takes one click for a guest below a base path, whose conversation stays with the next guest session',
        async () => {
          const environment = { AUTH_MODE: 'guest', BASE_PATH: '/chat-api' };
          const { page, profile, complaints } = await openChat(chromium, environment);
          await page.getByRole('button', { name: 'Continue as a guest' }).click();
          await page.locator('body[data-session=in]').waitFor();
          expect(await page.locator('#user').textContent()).toBe('Guest');
          await say(page, 'Hello');
          await lastAnswer(page, 'done');
          await profile.clearCookies();
          await say(page, 'Still me');
          await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
          await page.getByRole('button', { name: 'Continue as a guest' }).click();
          await page.locator('body[data-session=in]').waitFor();
          await page.locator('.answer:last-child .again').click();
          await page.locator('.answer:last-child[data-state=done]', { hasText: 'Still me' }).waitFor();
          expect(await page.locator('.answer').count()).toBe(3);
          // The session lasts after a reload.
          await page.reload();
          await page.locator('body[data-session=in]').waitFor();
          expect(complaints).toEqual([]);
        },
      ],
      [
        'is not undone by a late answer of the session before',
        async () => {
          const { page } = await openChat(chromium, demo);
          await signIn(page);
          let end = () => {};
          const held = new Promise<void>((resolve) => {
            end = resolve;
          });
          const problem = { type: 'about:blank', status: 401, code: 'session_ended', detail: 'Signed out.' };
          const body = `event: error\ndata: ${JSON.stringify(problem)}\n\n`;
          await page.route('**/message/sse', async (route) => {
            await held;
            await route.fulfill({ contentType: 'text/event-stream', body });
          });
          await say(page, 'Hello');
          await page.evaluate(() => {
            const states: unknown[] = [];
            Object.assign(globalThis, { states });
            const note = () => states.push(document.body.dataset.session);
            new MutationObserver(note).observe(document.body, { attributeFilter: ['data-session'] });
          });
          const asked = page.waitForResponse('**/auth/session');
          end();
          await lastAnswer(page, 'failed');
          await (await asked).finished();
          await page.getByRole('button', { name: 'Sign out' }).waitFor();
          expect(
            await page.evaluate(() => (globalThis as unknown as { states: string[] }).states),
          ).not.toContain('out');
        },
      ],
      [
        'sends no request to the relay on a first visit, then says what was wrong, and when to try again',
        async () => {
          const page = await (await chromium.browser.newContext()).newPage();
          const asked: string[] = [];
          page.on('request', (request) => asked.push(new URL(request.url()).pathname));
          await page.goto(`http://localhost:${await demo.listening()}/`, { waitUntil: 'networkidle' });
          await page.getByRole('heading', { name: 'Sign in' }).waitFor();
          expect(asked).toContain('/chat.js');
          expect(asked.filter((path) => path.startsWith('/auth/'))).toEqual([]);
          // The failures of one account do not count for another.
          await page.getByLabel('User name').fill('eve');
          await page.getByLabel('Password').fill('wrong');
          const button = page.getByRole('button', { name: 'Sign in' });
          await button.click();
          const alert = page.getByRole('alert');
          await alert.filter({ hasText: 'The user name or the password is wrong.' }).waitFor();
          await button.click();
          await alert.filter({ hasText: 'Too many failed sign-ins' }).waitFor();
          expect(await page.locator('#sign-in-wait').textContent()).toMatch(
            /^Try again in (\d+ min )?\d+ s\.$/,
          );
        },
      ],
    ],
    6,
  );
});
