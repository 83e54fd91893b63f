/// <reference lib="dom" />
import { afterAll, beforeAll, expect } from '@jest/globals';
import type { BrowserContext, Page } from 'playwright-core';
import { createBotClient } from '../../src/client/bot-client.ts';
import { botConversation } from '../../src/client/bot-conversation.ts';
import type { Config } from '../../src/config/config.ts';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { countAwakeMs } from '../support/awake.ts';
import { openChatFront } from '../support/chat-front.ts';
import { lastAnswer, longMessage, say, signIn, someWords } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import type { FakeLoadBalancer } from '../support/fake-load-balancer.ts';
import { describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay, USER } from '../support/relay.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { whileAwake } from '../support/while-awake.ts';

const BOTS = ['demo/echo', 'demo/tools'];
const OPERATIONS: Config['operations'] = ['message', 'chat', 'files'];

/** Two relays with one Redis, and two with ids that belong to users, all before one bot service. */
let service: BotService;
let redis: RedisServer;
let relays: TestRelay[];
const fronts: FakeLoadBalancer[] = [];
beforeAll(async () => {
  [service, redis] = await Promise.all([
    startBotService({ keys: [CANARY.key], speed: { wordMs: 30 }, limit: 1000 }),
    startRedis(),
  ]);
  const environment = { BOTS: BOTS.join(), OPERATIONS: OPERATIONS.join(), REDIS_URL: redis.url };
  relays = await Promise.all([
    startRelay(service.url, environment),
    startRelay(service.url, environment),
    startRelay(service.url, { ...environment, CHANNELS: 'owned' }),
  ]);
});
const chromium = oneChromium({ keepsTabs: true });
afterAll(async () => {
  for (const front of fronts) await front.close();
  for (const relay of relays) await relay.close();
  await service.close();
  await redis.stop();
});

/** The chat page at an origin of its own, and its calls. */
async function open(relay = relays[0] as TestRelay, bots = BOTS) {
  const { page, profile, front, called, complaints } = await openChatFront(chromium, relay.port, {
    ...{ authMode: 'password', bots, operations: OPERATIONS, channels: { mode: 'scoped' } },
  });
  fronts.push(front);
  const calls = callsOf(page);
  page.on('dialog', (dialog) => dialog.accept());
  return { page, profile, front, called, calls, complaints };
}

/** Every call of a bot, as `METHOD operation`. */
function callsOf(page: Page): string[] {
  const calls: string[] = [];
  page.on('request', (request) => {
    const [, operation] = /\/bot-provider\/[^/]+\/([^?]+)/.exec(request.url()) ?? [];
    if (operation) calls.push(`${request.method()} ${operation}`);
  });
  return calls;
}
async function signInAs(page: Page, user: typeof USER): Promise<void> {
  await page.getByLabel('User name').fill(user.name);
  await page.getByLabel('Password').fill(user.password);
  await signIn(page);
}
const texts = (page: Page) => page.locator('#messages .text').allTextContents();
const settled = (page: Page, operation: string) =>
  page.waitForResponse((response) => response.url().includes(operation));
/** The page's conversation at the relay, as another client of the same user sees it. */
async function conversationOf(profile: BrowserContext, user = USER) {
  const { origins } = await profile.storageState();
  const [{ id }] = JSON.parse(
    origins[0]?.localStorage.find(({ name }) => name.endsWith('tions'))?.value ?? '',
  );
  const [relay] = relays as [TestRelay];
  const client = createBotClient({ baseUrl: relay.url, namespace: 'demo', botProviderName: 'echo' });
  await client.signIn(user.name, user.password);
  return botConversation(client, id);
}

describeWithRedis('with Redis', () => {
  describeInChromium('a conversation at the chat page', () => {
    testSideBySide(
      [
        [
          'is shown after a reload, and at another instance, and no load runs the bot',
          async () => {
            const { page, front, calls, complaints } = await open();
            const metadata = settled(page, 'channel/metadata');
            await signInAs(page, USER);
            expect((await metadata).status()).toBe(404);
            await page.getByText('Write a message below.').waitFor();
            expect(calls).toEqual(['GET channel/metadata']);
            await say(page, 'Hello');
            await lastAnswer(page, 'done');
            for (const relay of relays.slice(0, 2)) {
              front.forwardTo(relay.port);
              calls.length = 0;
              await page.reload();
              await page.locator('.answer').waitFor();
              await page.locator('#clear').waitFor();
              expect(await texts(page)).toEqual(['Hello', 'You said: Hello']);
              expect(calls).toEqual(['GET channel/metadata', 'GET message/sse']);
            }
            await say(page, 'Again');
            await lastAnswer(page, 'done');
            expect(await texts(page)).toEqual(['Hello', 'You said: Hello', 'Again', 'You said: Again']);
            expect(calls.slice(2)).toEqual(['POST message/sse']);
            expect(complaints).toEqual([]);
          },
        ],
        [
          'is stopped at the bot service within a second',
          whileAwake(async () => {
            const { page, profile, called, calls, complaints } = await open();
            await signInAs(page, USER);
            await say(page, longMessage(60));
            await someWords(page);
            const conversation = await conversationOf(profile);
            expect((await conversation.metadata())?.runState).toBe('RUNNING');
            expect(calls).not.toContain('POST message/suspend');
            // From then on all happens in this process. Before, a slow browser takes its time.
            const suspended = called('message/suspend').then(countAwakeMs);
            await page.getByRole('button', { name: 'Stop' }).click();
            const awakeMs = await suspended;
            while ((await conversation.metadata())?.runState !== 'IDLE');
            expect(awakeMs()).toBeLessThan(1000);
            await lastAnswer(page, 'stopped');
            expect(complaints).toEqual([]);
          }),
        ],
        [
          'shows a run that goes on after a reload, and stops it',
          async () => {
            const { page, profile, calls, complaints } = await open();
            await signInAs(page, USER);
            await say(page, longMessage(60));
            await someWords(page);
            await page.reload();
            await someWords(page);
            expect(calls.filter((call) => call === 'POST message/sse')).toHaveLength(1);
            await page.getByRole('button', { name: 'Stop' }).click();
            await lastAnswer(page, 'stopped');
            const conversation = await conversationOf(profile);
            while ((await conversation.metadata())?.runState !== 'IDLE');
            expect(complaints).toEqual([]);
          },
        ],
        [
          'is seen by its user alone, of two users one after the other in one browser',
          async () => {
            const { page, calls, complaints } = await open();
            await signInAs(page, USER);
            await say(page, 'The secret of Ada');
            await lastAnswer(page, 'done');
            await page.getByRole('button', { name: 'Sign out' }).click();
            const asked = settled(page, 'channel/metadata');
            await signInAs(page, OTHER_USER);
            expect((await asked).status()).toBe(404);
            expect(await page.content()).not.toContain('secret');
            await say(page, 'The secret of Bob');
            await lastAnswer(page, 'done');
            expect(await texts(page)).toEqual(['The secret of Bob', 'You said: The secret of Bob']);
            const stored = await page.evaluate(() => JSON.stringify({ ...localStorage }));
            expect(stored).not.toMatch(/secret|ada|bob/i);
            // A page that is loaded anew knows of nobody who was signed in before.
            await page.getByRole('button', { name: 'Sign out' }).click();
            await page.reload();
            await signInAs(page, USER);
            await page.locator('.answer').waitFor();
            expect(await texts(page)).toEqual(['The secret of Ada', 'You said: The secret of Ada']);
            expect(calls.filter((call) => call === 'POST message/sse')).toHaveLength(2);
            expect(complaints).toEqual([]);
          },
        ],
        [
          'takes a file with a message, and gives it back, also after a reload',
          async () => {
            const { page, profile, complaints } = await open();
            await signInAs(page, USER);
            const file = { name: 'a note.html', mimeType: 'text/html', buffer: Buffer.from('<p>The note') };
            await page.locator('#file').setInputFiles([file, { ...file, name: 'other.txt' }]);
            await page.getByRole('button', { name: 'Remove other.txt' }).click();
            await page
              .locator('#live', { hasText: 'a note.html is attached.' })
              .waitFor({ state: 'attached' });
            await say(page, 'See');
            await lastAnswer(page, 'done');
            expect((await texts(page)).at(-1)).toBe('You said: See You sent: a note.html');
            expect(await page.locator('#files li').count()).toBe(0);
            await page.reload();
            const link = page.locator('.question').getByRole('link', { name: 'a note.html' });
            // A tab that becomes a download closes before its download can be read, so the address is asked.
            const address = new URL(`${await link.getAttribute('href')}`, page.url()).href;
            const answer = await profile.request.get(address);
            expect(answer.headers()['content-disposition']).toMatch(/^attachment;.*note\.html/);
            expect(await answer.text()).toBe('<p>The note');
            expect(complaints).toEqual([]);
          },
        ],
        [
          'goes on when the user allows a tool, also after a reload',
          async () => {
            const { page, complaints } = await open(relays[0], ['demo/tools']);
            await signInAs(page, USER);
            await say(page, 'What time is it?');
            await page.locator('.consent', { hasText: 'The bot asks to use clock.' }).waitFor();
            await page.reload();
            await page.getByRole('button', { name: 'Allow once' }).click();
            await page.locator('.answer:last-child .text', { hasText: 'in UTC.' }).waitFor();
            expect(await page.getByRole('button', { name: 'Allow once' }).count()).toBe(0);
            expect(complaints).toEqual([]);
          },
        ],
        [
          'is cleared, also at the bot service, and runs nothing for it',
          async () => {
            const { page, calls, complaints } = await open();
            await signInAs(page, USER);
            await say(page, 'Hello');
            await lastAnswer(page, 'done');
            calls.length = 0;
            await page.getByRole('button', { name: 'Clear' }).click();
            await page.getByText('Write a message below.').waitFor();
            await page.reload();
            await settled(page, 'message/sse');
            await page.getByText('Write a message below.').waitFor();
            expect(calls).toEqual(['POST channel/clear', 'GET channel/metadata', 'GET message/sse']);
            expect(complaints).toEqual([]);
          },
        ],
        [
          'begins where conversations are owned, though the relay refuses to tell whether it exists',
          async () => {
            const { page, complaints } = await open(relays[2]);
            const metadata = settled(page, 'channel/metadata');
            await signInAs(page, USER);
            expect((await metadata).status()).toBe(403);
            await say(page, 'Hello');
            await lastAnswer(page, 'done');
            await page.reload();
            await page.locator('.answer').waitFor();
            expect(await texts(page)).toEqual(['Hello', 'You said: Hello']);
            expect(complaints).toEqual([]);
          },
        ],
        [
          'is shown above a message that was sent before it was there, or stopped then',
          async () => {
            const { page, calls, complaints } = await open();
            await signInAs(page, USER);
            await say(page, 'Hello');
            await lastAnswer(page, 'done');
            for (const state of ['stopped', 'done']) {
              let load = () => {};
              const held = new Promise<void>((resolve) => {
                load = resolve;
              });
              await page.route('**/channel/metadata?*', async (route) => {
                await held;
                await route.continue();
              });
              await page.reload();
              calls.length = 0;
              await page.locator('body[data-session=in]').waitFor();
              await say(page, 'Again');
              await lastAnswer(page, 'waiting');
              if (state === 'stopped') await page.getByRole('button', { name: 'Stop' }).click();
              if (state === 'stopped') await lastAnswer(page, 'stopped');
              expect(calls).not.toContain('POST message/sse');
              load();
              await lastAnswer(page, state);
              await page.locator('.answer').nth(1).waitFor();
              const answer = state === 'done' ? 'You said: Again' : '';
              expect(await texts(page)).toEqual(['Hello', 'You said: Hello', 'Again', answer]);
              await page.unroute('**/channel/metadata?*');
            }
            expect(complaints).toEqual([]);
          },
        ],
        [
          'says that it cannot be loaded, and is loaded again',
          async () => {
            const { page, front } = await open();
            await signInAs(page, USER);
            await say(page, 'Hello');
            await lastAnswer(page, 'done');
            await page.route('**/channel/metadata?*', (route) => route.abort());
            await page.reload();
            await page.getByText('The conversation could not be loaded.').waitFor();
            await page.unroute('**/channel/metadata?*');
            front.forwardTo((relays[1] as TestRelay).port);
            await page.getByRole('button', { name: 'Load again' }).click();
            await page.locator('.answer').waitFor();
            expect(await texts(page)).toEqual(['Hello', 'You said: Hello']);
          },
        ],
      ],
      4,
    );
  });
});
