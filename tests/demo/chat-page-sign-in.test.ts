import { afterEach, expect, test } from '@jest/globals';
import { lastAnswer, openChat, say, signIn } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { CLIENT, startIdentityProvider } from '../support/identity-provider.ts';
import { stopProcesses } from '../support/process.ts';

const chromium = oneChromium();
afterEach(() => stopProcesses());

describeInChromium('signing in at the chat page', () => {
  test('works below a base path, and is still there after a reload', async () => {
    const { page, complaints } = await openChat(chromium, { BASE_PATH: '/chat-api' });
    await signIn(page);
    await say(page, 'Hello');
    await lastAnswer(page, 'done');
    await page.reload();
    await page.locator('body[data-session=in]').waitFor();
    expect(complaints).toEqual([]);
  });

  test('asks the relay for nothing on a first visit', async () => {
    const { page, profile, url } = await openChat(chromium);
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    const asked: string[] = [];
    const other = await profile.newPage();
    other.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await other.goto(url, { waitUntil: 'networkidle' });
    expect(asked).toContain('/chat.js');
    expect(asked.filter((path) => path.startsWith('/auth/'))).toEqual([]);
  });

  test('says what was wrong, and when another try is worth it', async () => {
    const { page } = await openChat(chromium, { LOGIN_MAX_FAILURES: '1' });
    await page.getByLabel('Password').fill('wrong');
    const button = page.getByRole('button', { name: 'Sign in' });
    await button.click();
    const alert = page.getByRole('alert');
    await alert.filter({ hasText: 'The user name or the password is wrong.' }).waitFor();
    await button.click();
    await alert.filter({ hasText: 'Too many failed sign-ins' }).waitFor();
    expect(await page.locator('#sign-in-wait').textContent()).toMatch(/^Try again in (\d+ min )?\d+ s\.$/);
  });

  test('shows one user nothing of what another has said', async () => {
    const { page } = await openChat(chromium);
    await signIn(page);
    await say(page, 'A secret');
    await lastAnswer(page, 'done');
    await page.locator('#text').fill('A draft');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    await signIn(page);
    // The same user finds all as it was.
    expect(await page.locator('.question').count()).toBe(1);
    expect(await page.locator('#text').inputValue()).toBe('A draft');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    const later = new Date(Date.now() + 60_000).toISOString();
    const json = { user: { id: 'eve', name: 'Eve' }, idleExpiresAt: later, absoluteExpiresAt: later };
    await page.route('**/auth/login', (route) => route.fulfill({ json }));
    await signIn(page);
    expect(await page.locator('#user').textContent()).toBe('Eve');
    expect(await page.locator('#messages').textContent()).toBe('');
    expect(await page.locator('#live').textContent()).not.toContain('secret');
    expect(await page.locator('#text').inputValue()).toBe('');
  });

  test('goes on in no channel of somebody else who was there before, whatever the bot', async () => {
    const { page } = await openChat(chromium, { BOTS: 'demo/*' });
    const channels: string[] = [];
    page.on('request', (request) => {
      if (request.url().endsWith('/sse')) channels.push(request.postDataJSON().customChannelId);
    });
    await signIn(page);
    await page.getByLabel('Bot').selectOption('demo/steps');
    await say(page, 'A secret');
    // Over, so that its bot's client does not hear of the end of the session.
    await lastAnswer(page, 'failed');
    const later = new Date(Date.now() + 60_000).toISOString();
    const json = { user: { id: 'eve', name: 'Eve' }, idleExpiresAt: later, absoluteExpiresAt: later };
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    await page.route('**/auth/login', (route) => route.fulfill({ json }));
    await signIn(page);
    await say(page, 'Hello');
    // The relay knows no Eve.
    await lastAnswer(page, 'failed');
    expect(channels).toHaveLength(2);
    expect(channels[1]).not.toBe(channels[0]);
  });

  test('is not undone by an answer that ends late with the session before', async () => {
    const { page } = await openChat(chromium);
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
    expect(await page.evaluate(() => (globalThis as unknown as { states: string[] }).states)).not.toContain(
      'out',
    );
  });

  test('is one press for a guest, who keeps the conversation as another guest', async () => {
    const { page, profile, complaints } = await openChat(chromium, { AUTH_MODE: 'guest' });
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
    expect(complaints).toEqual([]);
  });

  test('at an OpenID provider leads back to the conversation', async () => {
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
      // The provider knows its user still.
      await link.click();
      await page.locator('body[data-session=in]').waitFor();
      expect(await page.locator('.answer .text').first().textContent()).toBe('You said: Hello');
      expect(await page.locator('.answer').count()).toBe(2);
      expect(await page.locator('#text').inputValue()).toBe('Another draft');
      await say(page, 'On we go');
      await page.locator('.answer:last-child[data-state=done]', { hasText: 'On we go' }).waitFor();
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.waitForURL(`${provider.issuer}/**`);
      // The provider's own pages ask for an icon, and for a font of the web.
      const own = complaints.filter((one) => !one.includes(provider.issuer) && !one.includes('fonts.'));
      expect(own).toEqual([]);
    } finally {
      await provider.close();
    }
  });
});
