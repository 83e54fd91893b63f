/// <reference lib="dom" />
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import type { Config } from '../../src/config/config.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import {
  type ChatFront,
  countMessages,
  type JoiningPages,
  openChatFront,
  startJoiningPages,
} from '../harness/browser/chat-front.ts';
import {
  chooseBot,
  chooseChat,
  lastAnswer,
  longMessage,
  newChat,
  say,
  signIn,
  signOut,
  someWords,
  startDemoRelay,
  stored,
  texts,
} from '../harness/browser/chat-page.ts';
import { type Chromium, describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis } from '../harness/redis/redis.ts';
import { freePort } from '../harness/relay/free-port.ts';
import {
  freshFolder,
  inFrontOf,
  startProcess,
  stopProcesses,
  untilReady,
  usersFile,
} from '../harness/relay/process.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { CLIENT, startIdentityProvider } from '../harness/service/identity-provider.ts';

interface KillablePage extends ChatFront {
  /** How many messages the bot service has got. */
  posts(): number;
  /** Kills the relay, or ends it with another signal; another one in its place gets requests once it is ready. */
  restart(signal?: NodeJS.Signals): Promise<void>;
  close(): Promise<void>;
}

/** Opens the chat page at a relay in a process of its own, with a user who is signed in. `stopProcesses` ends the relay. */
async function openKillable(
  chromium: Chromium,
  environment: Readonly<Record<string, string>>,
): Promise<KillablePage> {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 50 }, limit: 1000 });
  const counter = await countMessages(service.url);
  const folder = freshFolder({ 'users.json': usersFile() });
  const settings = { ...inFrontOf(counter.url), BOTS: 'demo/echo', OPERATIONS: 'message', CHAT_PAGE: 'on' };
  const start = () => startProcess({ folder, environment: { ...settings, ...environment } });
  let relay = start();
  /** The port of the relay, once it is ready. */
  const ready = async () => {
    const port = await relay.listening();
    await untilReady(port);
    return port;
  };
  const parts: { close(): Promise<void> }[] = [service, counter];
  const close = async () => {
    for (const one of parts.splice(0).reverse()) await one.close();
  };
  async function restart({ front }: ChatFront, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    relay.signal(signal);
    await relay.exited;
    relay = start();
    front.forwardTo(await ready());
  }
  try {
    const chat = await openChatFront(chromium, await ready());
    parts.push(chat.front);
    await signIn(chat.page, USER);
    return { ...chat, posts: counter.posts, restart: (signal) => restart(chat, signal), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Of a run without a client: longer than any pause of this machine. */
const GRACE = { JOIN_GRACE_MS: '600000' };
/** For cases that must reach the page before the run ends. */
const MORE_WORDS = longMessage(8);
const answerTo = (words: string) => `You said: ${words}`;
const OPERATIONS = 'message,chat,files';

let pages: JoiningPages;
let service: BotService;
let redis: RedisServer;
/** Two relays with one Redis, before one bot service. */
let relays: TestRelay[] = [];
const fronts: ChatFront[] = [];
const chromium = oneChromium({ keepsTabs: true });
beforeAll(async () => {
  pages = await startJoiningPages();
  service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 30 }, limit: 1000 });
});
afterAll(async () => {
  for (const { front } of fronts) await front.close();
  for (const relay of relays) await relay.close();
  await Promise.all([pages.close(), service.close(), redis?.stop()]);
  await stopProcesses();
});

async function reload(operations: Config['operations'], shown: readonly string[]): Promise<void> {
  const { page, posts, texts, kept, complaints } = await pages.open(chromium, operations, GRACE);
  await say(page, MORE_WORDS);
  await someWords(page);
  expect(await kept()).toMatch(/./);
  expect(await kept()).not.toContain('word');
  await page.reload();
  await lastAnswer(page, 'done');
  expect(await texts()).toEqual(shown);
  expect(posts()).toBe(1);
  expect(await kept()).toBeNull();
  expect(complaints).toEqual([]);
}

async function breakWithoutJoining(): Promise<void> {
  const { page, cut, posts, kept, complaints } = await pages.open(chromium, ['message'], { JOIN: 'off' });
  await say(page, MORE_WORDS);
  await someWords(page);
  const [answer] = await Promise.all([page.waitForResponse('**/message/run?*'), page.reload()]);
  expect(answer.status()).toBe(410);
  await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
  await page.waitForFunction(() => !sessionStorage.getItem('bot-relay-messages'));
  expect(await kept()).toBeNull();
  expect(await page.locator('.answer, .why:visible').allTextContents()).toEqual([]);
  expect(posts()).toBe(1);
  await say(page, MORE_WORDS);
  await someWords(page);
  cut();
  await lastAnswer(page, 'error');
  const why = page.locator('.answer:last-child .why');
  expect(await why.textContent()).toBe('The answer is not complete. The connection was lost.');
  expect(await page.locator('.answer code').first().textContent()).toMatch(/^[0-9a-f-]{36}$/);
  expect(posts()).toBe(2);
  expect(complaints).toEqual([]);
}

async function relayGoneAndBack(): Promise<void> {
  const port = await freePort();
  const relay = startDemoRelay({ PORT: `${port}` });
  await relay.listening();
  const { page, complaints } = await chromium.open(`http://localhost:${port}/`);
  expect(await page.getByLabel('User name').inputValue()).toBe('demo');
  // The form is filled in.
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
  await say(page, longMessage(30));
  await someWords(page);
  await noDoublePress(page);
  relay.signal('SIGKILL');
  await page.locator('.answer:last-child', { hasText: 'Connection lost' }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await lastAnswer(page, 'stopped');
  await relay.exited;
  await say(page, 'Are you there?');
  await page.locator('.answer:last-child .why', { hasText: 'cannot be reached' }).waitFor();
  await startProcess({ environment: { PORT: `${port}` } }).listening();
  await page.locator('.answer:last-child .trouble button:visible').last().click();
  // The sessions were in the memory of the relay that is gone.
  await page.getByRole('heading', { name: 'You are signed out.' }).waitFor();
  await signIn(page);
  // A press within 300 ms of the one before would be the second one of a double-click.
  await sleep(350);
  await page.locator('.answer:last-child .trouble button:visible').last().click();
  await page.locator('.answer').nth(3).waitFor();
  await lastAnswer(page, 'done', 'error');
  expect(await texts(page)).toContain(answerTo('Are you there?'));
  expect(complaints.filter((one) => !one.includes('net::ERR_'))).toEqual([]);
}

async function signInAtProvider(): Promise<void> {
  const port = await freePort();
  const provider = await startIdentityProvider(`http://localhost:${port}`);
  try {
    const relay = startDemoRelay({
      PORT: String(port),
      AUTH_MODE: 'oidc',
      OIDC_ISSUER: provider.issuer,
      OIDC_CLIENT_ID: CLIENT.id,
      OIDC_CLIENT_SECRET: CLIENT.secret,
    });
    await relay.listening();
    const { page, complaints } = await chromium.open(`http://localhost:${port}/`);
    const link = page.getByRole('link', { name: 'Sign in at your provider' });
    await link.click();
    await page.locator('input[name=login]').fill('ada');
    await page.locator('input[name=password]').fill('any');
    await page.locator('button[type=submit]').click();
    // The button of the first form would be pressed twice while the second one is loaded.
    await page.locator('input[name=prompt][value=consent]').waitFor({ state: 'attached' });
    await page.locator('button[type=submit]').click();
    await page.getByLabel('Account of Ada').waitFor();
    expect(new URL(page.url()).pathname).toBe('/');
    await say(page, `Hello ${longMessage(1)}`);
    await noDoublePress(page);
    await lastAnswer(page, 'done');
    await page.context().clearCookies({ domain: 'localhost' });
    // Its place is hidden as soon as the relay has refused it.
    await page.getByRole('textbox', { name: 'Message' }).fill('And now?');
    await page.keyboard.press('Enter');
    // The user is still signed in at the provider.
    await link.click();
    await page.locator('.answer', { hasText: 'You said: Hello' }).waitFor();
    await signOut(page);
    await page.waitForURL(`${provider.issuer}/**`);
    // The provider's own pages request an icon and a web font.
    const own = complaints.filter((one) => !one.includes(provider.issuer) && !one.includes('fonts.'));
    expect(own).toEqual([]);
  } finally {
    await provider.close();
  }
}

describeInChromium('an answer at the chat page', () => {
  const goesOn = 'goes on after a reload, once, and is paid once: at a page';
  testSideBySide(
    [
      [`${goesOn} which shows no history`, () => reload(['message'], [answerTo(MORE_WORDS)])],
      [
        `${goesOn} which shows its question again`,
        () => reload(['message', 'chat'], [MORE_WORDS, answerTo(MORE_WORDS)]),
      ],
      [
        'is not sent again by a reload or a break where nothing can be joined; only the break is an error',
        breakWithoutJoining,
      ],
      ['says when the relay is gone, and is asked for when it is back', relayGoneAndBack],
      ['follows a sign-in at an OpenID provider, which returns to the conversation', signInAtProvider],
    ],
    3,
  );
});

/** A restart without Redis: sessions are gone, and so is the run. */
async function reloadWithoutRedis(): Promise<void> {
  await inTheMiddle({}, async ({ page, restart }, reload) => {
    await reload(restart);
    const [answer] = await Promise.all([page.waitForResponse('**/message/run?*'), signIn(page, USER)]);
    expect(answer.status()).toBe(410);
    await page.waitForFunction(() => !sessionStorage.getItem('bot-relay-messages'));
    await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
    expect(await page.locator('.answer, .why:visible').allTextContents()).toEqual([]);
  });
}

/** A restart where Redis keeps the session and what was there of the answer. */
async function reloadWithRedis(store: RedisServer): Promise<void> {
  await inTheMiddle({ REDIS_URL: store.url }, async ({ page, restart }, reload) => {
    // What no other relay waits for is stored once a second.
    await until(async () => String(await store.command('KEYS', 'bot-relay:*:log:*')) !== '', 20);
    await reload(restart);
    await lastAnswer(page, 'error');
    expect(await page.locator('.answer .text').textContent()).toMatch(/^You/);
    expect(await page.locator('.answer .details').textContent()).toContain('The relay has lost this answer');
  });
}

/**
 * Calls `use` in the middle of an answer, with a function that loads the page again after a loss; then expects that one
 * message was paid. The page is not there during the loss: it would ask the new relay for the answer first, and then
 * the loaded one would have nothing to ask for.
 */
async function inTheMiddle(
  environment: Readonly<Record<string, string>>,
  use: (opened: KillablePage, reload: (lose: () => Promise<void>) => Promise<void>) => Promise<void>,
): Promise<void> {
  const opened = await openKillable(chromium, { ...GRACE, ...environment });
  const { page, posts, complaints } = opened;
  try {
    await say(page, MORE_WORDS);
    await someWords(page);
    await use(opened, async (lose) => {
      const address = page.url();
      await page.goto('about:blank');
      await lose();
      await page.goto(address);
    });
    await onlyOnce(page, posts);
    expect(complaints).toEqual([]);
  } finally {
    await opened.close();
  }
}

/** A shutdown without grace ends the answer: its run is over, with Redis, too, which keeps how it has ended. A reload asks for nothing. */
async function reloadAfterShutdown(store?: RedisServer): Promise<void> {
  const noGrace = { SHUTDOWN_GRACE_MS: '0', SHUTDOWN_DELAY_MS: '0' };
  const environment = { ...noGrace, ...(store && { REDIS_URL: store.url }) };
  await inTheMiddle(environment, async ({ page, calls, restart }) => {
    const [[, , , channel, id]] = JSON.parse(
      (await page.evaluate(() => sessionStorage.getItem('bot-relay-messages'))) ?? '',
    );
    await restart('SIGTERM');
    await lastAnswer(page, 'error');
    expect(await page.locator('.answer .details').textContent()).toContain(
      'The relay was restarted while this answer was on its way',
    );
    await page.waitForFunction(() => !sessionStorage.getItem('bot-relay-messages'));
    await page.reload();
    // Without Redis, the session is gone, too.
    if (!store) await signIn(page, USER);
    await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
    expect(calls).not.toContain('GET message/run');
    const names = `custom_channel_id=${channel}&custom_message_id=${id}`;
    const run = await page.request.get(
      new URL(`/generic/ns/demo/bot-provider/echo/message/run?${names}`, page.url()).href,
    );
    const code = /"code":"(\w+)"/.exec(await run.text())?.[1];
    expect([run.status(), code]).toEqual(store ? [200, 'answer_lost'] : [410, 'run_over']);
  });
}

/** Expects that one message is paid, also after some time and a second reload. */
async function onlyOnce(page: Page, posts: () => number): Promise<void> {
  await sleep(1_000);
  await page.reload();
  await page.getByRole('heading', { name: 'How can I help?' }).waitFor();
  await sleep(1_000);
  expect(posts()).toBe(1);
}

describeWithRedis('an answer whose relay or Redis is lost', () => {
  const stores: RedisServer[] = [];
  const newStore = async () => {
    const store = await startRedis();
    stores.push(store);
    return store;
  };
  afterAll(() => Promise.all(stores.map((store) => store.stop())));

  describeInChromium('at the chat page', () => {
    testSideBySide([
      [
        'is gone after a reload when the relay was killed, without Redis, and is paid once',
        reloadWithoutRedis,
      ],
      [
        'is shown as far as it came after a reload when the relay was killed, with Redis, and is paid once',
        async () => reloadWithRedis(await newStore()),
      ],
      [
        'has ended and is not asked for after a reload when the relay was shut down, without Redis',
        () => reloadAfterShutdown(),
      ],
      [
        'has ended and is not asked for after a reload when the relay was shut down, with Redis',
        async () => reloadAfterShutdown(await newStore()),
      ],
    ]);
  });
});

describeWithRedis('with Redis', () => {
  beforeAll(async () => {
    redis = await startRedis();
    const environment = { BOTS: 'demo/echo,demo/tools', OPERATIONS, CHAT_PAGE: 'on', REDIS_URL: redis.url };
    relays = await Promise.all([startRelay(service.url, environment), startRelay(service.url, environment)]);
  });
  /** The chat page of a relay, with a user who is signed in. */
  async function open(relay = relays[0] as TestRelay): Promise<ChatFront> {
    const opened = await openChatFront(chromium, relay.port);
    fronts.push(opened);
    await signIn(opened.page, USER);
    return opened;
  }
  const paid = (calls: readonly string[]) => calls.filter((call) => call === 'POST message/sse').length;

  describeInChromium('a conversation at the chat page', () => {
    testSideBySide(
      [
        [
          'is shown after a reload, and at another instance, and no load runs the bot',
          async () => {
            const { page, front, calls, complaints } = await open();
            await say(page, 'Hello');
            await lastAnswer(page, 'done');
            for (const relay of relays) {
              front.forwardTo(relay.port);
              await page.reload();
              await lastAnswer(page, 'done');
              expect(await texts(page)).toEqual(['Hello', 'You said: Hello']);
            }
            await say(page, 'Again');
            await page.locator('.answer[data-state=done]', { hasText: 'Again' }).waitFor();
            expect(paid(calls)).toBe(2);
            expect(complaints).toEqual([]);
          },
        ],
        [
          'is stopped at the bot service, also a run that goes on after a reload',
          async () => {
            const { page, called, calls, complaints } = await open();
            for (const isReloaded of [false, true]) {
              await say(page, longMessage(60));
              await someWords(page);
              await noDoublePress(page);
              if (isReloaded) await page.reload();
              if (isReloaded) await someWords(page);
              const suspended = called('message/suspend').then(async (answer) => {
                await once(answer, 'finish');
                return answer.statusCode;
              });
              await page.getByRole('button', { name: 'Stop' }).click();
              expect(await suspended).toBe(200);
              await lastAnswer(page, 'stopped');
            }
            expect(paid(calls)).toBe(2);
            expect(complaints).toEqual([]);
          },
        ],
        [
          'goes on when the user allows a tool, also after a reload',
          async () => {
            const { page, complaints } = await open();
            await chooseBot(page, 'demo/tools');
            await say(page, 'What time is it?');
            await page.locator('.consent', { hasText: 'The bot asks to use clock.' }).waitFor();
            await page.reload();
            // The bot is the one that was chosen.
            await page.getByRole('button', { name: 'Allow once' }).click();
            await page.locator('.answer:last-child .text', { hasText: 'in UTC.' }).waitFor();
            expect(complaints).toEqual([]);
          },
        ],
        ['is one of several in the list of this browser', () => severalChats(open)],
        ['is seen by its user alone, of two in one browser, with two tabs and reloads', () => twoUsers(open)],
      ],
      3,
    );
  });
});

/** Resolves when so much is answered, at 30 ms a word or more, that the next press is not the second one of a double-click. */
const noDoublePress = (page: Page) =>
  page.locator('.answer:last-child .text', { hasText: longMessage(1) }).waitFor();

async function severalChats(open: () => Promise<ChatFront>): Promise<void> {
  const front = await open();
  const { page, complaints } = front;
  await say(page, `First ${MORE_WORDS}`);
  await noDoublePress(page);
  await newChat(page);
  await say(page, 'Second');
  await lastAnswer(page, 'done');
  // The answer in the first chat has gone on.
  await chooseChat(page, 'First');
  await lastAnswer(page, 'streaming', 'done');
  await lastAnswer(page, 'done');
  expect(await texts(page)).toEqual([`First ${MORE_WORDS}`, answerTo(`First ${MORE_WORDS}`)]);
  // Another tab opens what was opened last, and each tab keeps its own over a reload.
  const other = await front.openTab();
  await other.page.locator('.answer', { hasText: 'First' }).waitFor();
  await chooseChat(page, 'Second');
  await page.locator('.answer', { hasText: 'You said: Second' }).waitFor();
  await Promise.all([page.reload(), other.page.reload()]);
  await page.locator('.answer', { hasText: 'You said: Second' }).waitFor();
  await other.page.locator('.answer', { hasText: 'First' }).waitFor();
  expect(complaints).toEqual([]);
}

/** All that a user or a script can find in a tab: what is shown, written and kept. */
async function findable(page: Page): Promise<string> {
  const shown = await page.locator('bot-chat').evaluate((chat) => {
    const fields = chat.shadowRoot?.querySelectorAll<HTMLInputElement>('textarea, input') ?? [];
    return [chat.shadowRoot?.textContent, ...[...fields].map(({ value }) => value)].join(' ');
  });
  return shown + (await stored(page));
}

/** Leaves texts, chats with two bots, a draft and an attachment in a tab. */
async function leaveTraces(page: Page, name: string): Promise<void> {
  await chooseBot(page, 'demo/echo');
  for (const number of [1, 2]) {
    if (number === 2) await newChat(page);
    await say(page, `Secret ${number} of ${name} ${longMessage(1)}`);
    await noDoublePress(page);
    await lastAnswer(page, 'done');
  }
  await chooseBot(page, 'demo/tools');
  await say(page, `Secret 3 of ${name}`);
  await page.locator('.consent').waitFor();
  const file = { name: 'secret.txt', mimeType: 'text/plain', buffer: Buffer.from(name) };
  await page.locator('input[type=file]').setInputFiles(file);
  await page.locator('.files li[data-state=done]').waitFor();
  await page.getByRole('textbox', { name: 'Message' }).fill(`Secret draft of ${name}`);
  expect(await findable(page)).toMatch(/Secret 3 of .*Secret draft.*bot-relay-chats.*Secret 1 of/s);
}

/** The ids of the conversations that the browser keeps. */
async function conversationIds(page: Page): Promise<string[]> {
  const rows = JSON.parse(await page.evaluate(() => localStorage.getItem('bot-relay-chats') ?? '[]'));
  return rows.map(([, , , id]: string[]) => id);
}

async function twoUsers(open: () => Promise<ChatFront>): Promise<void> {
  const front = await open();
  const { page, profile, complaints } = front;
  const { page: other } = await front.openTab();
  const tabs = [page, other];
  const leaves = [
    () => signOut(page),
    // The session has merely ended: what was written stays until another user signs in.
    async () => {
      await profile.clearCookies();
      await page.reload();
    },
  ];
  const asked: string[] = [];
  for (const tab of tabs)
    tab.on('request', (request) => asked.push(`${request.url()} ${request.postData()}`));
  page.on('response', (response) => asked.push(`answered: ${response.url()}`));
  let user = USER;
  for (const leave of leaves) {
    await Promise.all(tabs.map((tab) => leaveTraces(tab, user.name)));
    // What the other tab has written arrives later.
    await page.waitForFunction(() => JSON.parse(localStorage.getItem('bot-relay-chats') ?? '[]').length > 3);
    const ids = await conversationIds(page);
    await leave();
    const others = user === USER ? OTHER_USER : USER;
    if (leave === leaves[0]) {
      for (const tab of tabs) {
        await tab.getByRole('heading', { name: 'You are signed out.' }).waitFor();
        expect(await findable(tab)).not.toMatch(new RegExp(`secret|${user.name}`, 'i'));
      }
    }
    asked.length = 0;
    await signIn(page, others);
    for (const isReloaded of [false, true]) {
      if (isReloaded) await Promise.all(tabs.map((tab) => tab.reload()));
      for (const tab of tabs) {
        await tab.getByLabel(`Account of ${others.name}`).waitFor();
        await tab.getByRole('heading', { name: 'How can I help?' }).waitFor();
        expect(await findable(tab)).not.toMatch(new RegExp(`secret|${user.name}`, 'i'));
      }
    }
    // Until the other one is signed in, a tab that does not know yet may still ask for a title, and gets nothing.
    const signedIn = asked.findIndex((one) => /^answered: .*\/auth\/login$/.test(one));
    expect(signedIn).toBeGreaterThan(-1);
    expect(asked.slice(signedIn).filter((request) => ids.some((id) => request.includes(id)))).toEqual([]);
    user = others;
  }
  expect(complaints).toEqual([]);
}
