import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { textOf } from '../../src/client/channel/channel-state.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import {
  type BotClient,
  type BotClientOptions,
  createBotClient,
  RelayError,
} from '../../src/client/session/bot-client.ts';
import type { Guards } from '../../src/client/transport/bot-event.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { until } from '../harness/clock/until.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { startBotRuns } from '../harness/service/bot-runs.ts';

/** What fetch-event-source needs of a page. */
Object.assign(globalThis, { window: globalThis, document: { removeEventListener: () => {} } });

const AsyncFunction = (async () => {}).constructor as new (
  ...parts: string[]
) => (...values: unknown[]) => Promise<unknown>;

const PAGES = ['client', 'fetch', 'library'].map((page) => `docs/front-end/${page}.md`);
const documents = ['README.md', ...PAGES, 'docs/sign-in.md']
  .map((path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8'))
  .join('\n');

/** The code of the documents' snippet `name`, without its imports. */
const scriptOf = (name: string) => codeOf(documents, name).replace(/^import .*$/gm, '');

/** The documents' snippet `name` as a function of what a page has around it. */
function snippet(name: string, ...around: string[]) {
  return new AsyncFunction(...around, scriptOf(name));
}

let botService: BotService;
let relay: TestRelay;
/** How many messages the page has sent. */
let sent: number;
beforeEach(async () => {
  sent = 0;
  botService = await startBotService({ keys: [CANARY.key], speed: { wordMs: 50 } });
  relay = await startRelay(botService.url, { BOTS: 'demo/echo' });
});
afterEach(async () => {
  await relay.close();
  await botService.close();
});

/** The page's `fetch`: it has an origin and sends the cookie. */
function pageFetch(cookie: string) {
  return (path: string, init: RequestInit = {}) => {
    if (path.startsWith('/generic')) sent++;
    return fetch(relay.url + path, { ...init, headers: { ...(init.headers as object), Cookie: cookie } });
  };
}

describe("the README's first call", () => {
  const run = snippet('first-call', 'fetch', 'console');

  test('prints the answer piece by piece', async () => {
    const printed: string[] = [];
    await run(pageFetch(await relay.signIn()), { log: (text: string) => printed.push(text) });
    expect(printed.length).toBeGreaterThan(1);
    expect(printed.join('')).toMatch(/"text":"You said: Hello from the console"[\s\S]*asgard\.run\.done/);
  });

  test('throws the detail of a message that is refused', async () => {
    await expect(run(pageFetch(''), { log: () => {} })).rejects.toThrow('You are not signed in');
  });
});

describe('the first lines with plain fetch', () => {
  const run = snippet('first-fetch', 'fetch', 'show', 'EventSourceParserStream');
  const ask = (cookie: string, show: (delta: string) => unknown) =>
    run(pageFetch(cookie), show, EventSourceParserStream);

  test('show the answer piece by piece', async () => {
    const shown: string[] = [];
    await ask(await relay.signIn(), (delta) => shown.push(delta));
    expect(shown).toEqual(['You', ' said:', ' Hello']);
  });

  test('throw the detail of a message that is refused', async () => {
    await expect(ask('', () => {})).rejects.toThrow('You are not signed in');
  });

  test('throw when the stream of the bot service breaks', async () => {
    const answer = ask(await relay.signIn(), () => void botService.close());
    await expect(answer).rejects.toThrow('broke off');
  });
});

describe('the snippets of the sign-in', () => {
  const signIn = snippet('password', 'fetch', 'username', 'password');
  const becomeGuest = snippet('guest', 'fetch');

  test('sign in with a password', async () => {
    const answers: Response[] = [];
    const noted = async (path: string, init: RequestInit) => {
      const answer = await pageFetch('')(path, init);
      answers.push(answer.clone());
      return answer;
    };
    await signIn(noted, USER.name, USER.password);
    expect(await answers[0]?.json()).toMatchObject({ user: { id: USER.name } });
  });

  test('throw the detail of a wrong password', async () => {
    await expect(signIn(pageFetch(''), USER.name, 'wrong')).rejects.toThrow('password is wrong');
  });

  test('make a guest where guests may enter, and throw where they may not', async () => {
    await expect(becomeGuest(pageFetch(''))).rejects.toThrow('You cannot come in');
    const forGuests = await startRelay(botService.url, { AUTH_MODE: 'guest' });
    try {
      await becomeGuest((path: string, init: RequestInit) => fetch(forGuests.url + path, init));
    } finally {
      await forGuests.close();
    }
  });
});

type Show = (delta: string) => unknown;
const REFUSED = { status: 401, code: 'unauthenticated', requestId: expect.any(String) };
const BROKEN = { code: 'upstream_stream_broken' };

describe.each([
  {
    how: 'plain fetch',
    ask(cookie: string, show: Show) {
      const run = snippet('fetch', 'fetch', 'show', 'EventSourceParserStream');
      return run(pageFetch(cookie), show, EventSourceParserStream);
    },
    broken: { ...BROKEN, requestId: expect.any(String), retryable: false, maybeStarted: true },
  },
  {
    how: 'an existing library',
    ask(cookie: string, show: Show) {
      const withFetch = (path: string, options: object) =>
        fetchEventSource(path, { ...options, fetch: pageFetch(cookie) as typeof fetch });
      return snippet('library', 'fetchEventSource', 'show')(withFetch, show);
    },
    broken: BROKEN,
  },
])('the snippet with $how', ({ ask, broken }) => {
  test('shows the answer piece by piece', async () => {
    const shown: string[] = [];
    await ask(await relay.signIn(), (delta) => shown.push(delta));
    expect(shown).toEqual(['You', ' said:', ' Hello']);
  });

  test('throws the problem of a message that is refused, which it sends once', async () => {
    await expect(ask('', () => {})).rejects.toMatchObject(REFUSED);
    expect(sent).toBe(1);
  });

  test('throws when the stream breaks, and sends nothing again', async () => {
    const shown: string[] = [];
    const showThenBreak = (delta: string) => {
      shown.push(delta);
      void botService.close();
    };
    await expect(ask(await relay.signIn(), showThenBreak)).rejects.toMatchObject(broken);
    // On a busy machine a word can come while the bot service is told to close.
    expect(shown[0]).toBe('You');
    expect(shown).not.toContain(' Hello');
    expect(sent).toBe(1);
  });
});

describe('the snippet of the other operations with plain fetch', () => {
  interface Event {
    readonly eventType: string;
    readonly fact: {
      readonly messageUser?: { readonly text: string };
      readonly messageComplete?: { readonly message: { readonly messageId: string; readonly text: string } };
      readonly toolCallConsent?: { readonly pendingCalls: readonly { readonly toolCallId: string }[] };
    };
  }
  type Events = AsyncIterable<Event>;
  interface Operations {
    send(message: object): Events;
    consent(consents: readonly object[]): Events;
    history(signal?: AbortSignal): Events;
    metadata(): Promise<
      { readonly title: string; readonly launchedSandboxes: readonly object[] } | undefined
    >;
    stop(): Promise<unknown>;
    reset(): Promise<unknown>;
    feedback(messageId: string, verdict: string, comment?: string): Promise<unknown>;
    upload(file: File): Promise<string>;
    downloadUrl(path: string): string;
  }
  const names = 'send, consent, history, metadata, stop, reset, feedback, upload, downloadUrl';
  const around = ['fetch', 'show', 'EventSourceParserStream'];
  const code = [scriptOf('fetch'), scriptOf('operations'), `return { ${names} };`].join('\n');
  const run = new AsyncFunction(...around, code.replace('/echo/', '/tools/'));

  async function all(events: Events): Promise<Event[]> {
    const list = [];
    for await (const event of events) list.push(event);
    return list;
  }
  const answersIn = (events: readonly Event[]) =>
    events.flatMap(({ fact }) => fact.messageComplete?.message ?? []);

  /** Runs it in a page, whose first message asks for a consent. */
  async function inPage(
    OPERATIONS: string,
    use: (page: Operations, get: (path: string) => Promise<Response>) => Promise<void>,
  ) {
    await relay.close();
    relay = await startRelay(botService.url, { BOTS: 'demo/tools', OPERATIONS });
    const fetchInPage = pageFetch(await relay.signIn());
    const page = await run(fetchInPage, () => {}, EventSourceParserStream);
    await use(page as Operations, fetchInPage);
  }

  test('has the history, the metadata and what the user thinks, and forgets what was said', async () => {
    await inPage('message,chat', async (page) => {
      expect(await page.metadata()).toMatchObject({ title: 'Hello', launchedSandboxes: [expect.anything()] });
      const said = await all(page.history());
      expect(said[0]?.fact.messageUser?.text).toBe('Hello');
      const [answer] = answersIn(said);
      expect(await page.feedback(`${answer?.messageId}`, 'GOOD', 'Yes.')).toBeDefined();
      await expect(page.feedback(`${answer?.messageId}`, 'fine')).rejects.toMatchObject({
        code: 'upstream_refused',
        upstream: expect.anything(),
      });
      expect(await page.stop()).toBeUndefined();
      await page.reset();
      expect(answersIn(await all(page.history()))).toEqual([]);
    });
  });

  test('answers a tool call, and stops a run', async () => {
    await inPage('message,chat', async (page) => {
      const consents = (await all(page.history()))
        .flatMap(({ fact }) => fact.toolCallConsent?.pendingCalls ?? [])
        .map(({ toolCallId }) => ({ toolCallId, result: 'DENY_ONCE' }));
      let stopped: unknown;
      const events = [];
      for await (const event of page.consent(consents)) {
        events.push(event);
        if (event.eventType === 'asgard.message.delta') stopped ??= await page.stop();
      }
      expect(stopped).toEqual({ suspended: true });
      expect(answersIn(events)[0]?.text).toMatch(/^Then( I)?( do)?( not)?$/);
      expect(events.at(-1)?.eventType).toBe('asgard.run.done');
    });
  });

  test('sends a file with a message, and has its address', async () => {
    await inPage('message,files', async (page, get) => {
      const blobId = await page.upload(new File(['The text'], 'a note.txt'));
      expect(answersIn(await all(page.send({ text: 'See', blobIds: [blobId] })))).toHaveLength(1);
      expect(await (await get(page.downloadUrl('a note.txt'))).text()).toBe('The text');
      await expect(page.metadata()).rejects.toMatchObject({ status: 501, code: 'operation_not_enabled' });
    });
  });
});

describe('the snippet with the client', () => {
  const run = snippet(
    'client',
    ...['createBotClient', 'RelayError', 'name', 'password', 'show', 'showError', 'showSignIn'],
  );

  interface Page {
    readonly onShow?: () => unknown;
    readonly password?: string;
    /** In place of the cookie that the client keeps. */
    readonly cookieOfMessages?: string;
  }

  /** Runs it in a page; returns what that has shown. */
  async function page({ onShow, password = USER.password, cookieOfMessages }: Page = {}) {
    const shown: string[] = [];
    const errors: unknown[][] = [];
    let signIns = 0;
    const fetchInPage: typeof fetch = (path, init) => {
      const headers = new Headers(init?.headers);
      if (String(path).startsWith('/generic')) {
        sent++;
        if (cookieOfMessages !== undefined) headers.set('Cookie', cookieOfMessages);
      }
      return fetch(relay.url + String(path), { ...init, headers });
    };
    const create = (options: BotClientOptions) =>
      createBotClient({ ...options, expert: { cookies: 'keep', fetch: fetchInPage } });
    const show = (delta: string) => {
      shown.push(delta);
      onShow?.();
    };
    const showError = (...error: unknown[]) => errors.push(error);
    await run(create, RelayError, USER.name, password, show, showError, () => signIns++);
    return { shown, errors, signIns };
  }

  test('signs in and shows the answer piece by piece', async () => {
    expect(await page()).toEqual({ shown: ['You', ' said:', ' Hello'], errors: [], signIns: 0 });
  });

  test('shows the problem of a wrong password, and sends nothing', async () => {
    const { shown, errors } = await page({ password: 'wrong' });
    expect(shown).toEqual([]);
    expect(errors).toEqual([
      [expect.any(String), expect.objectContaining({ code: 'invalid_credentials', status: 401 })],
    ]);
    expect(sent).toBe(0);
  });

  test('shows the error of a stream that breaks, and sends nothing again', async () => {
    const { shown, errors } = await page({ onShow: () => void botService.close() });
    expect(shown[0]).toBe('You');
    expect(shown).not.toContain(' Hello');
    expect(errors).toEqual([
      [expect.any(String), expect.objectContaining({ code: 'upstream_stream_broken', status: 502 })],
    ]);
    expect(sent).toBe(1);
  });

  test('shows the sign-in again when the session is over', async () => {
    const { shown, errors, signIns } = await page({ cookieOfMessages: '' });
    expect({ shown, signIns }).toEqual({ shown: [], signIns: 1 });
    expect(errors).toEqual([
      [expect.any(String), expect.objectContaining({ code: 'unauthenticated', status: 401 })],
    ]);
    expect(sent).toBe(1);
  });
});

describe('the snippet with a channel', () => {
  const run = snippet(
    'channel',
    ...['createBotClient', 'createChannel', 'textOf', 'form', 'FormData'],
    ...['showSignIn', 'showMessages', 'showStatus'],
  );

  test('shows that nobody is signed in, and then a message and its answer', async () => {
    const form = { onsubmit: async (_event: { preventDefault(): void }) => {} };
    class FormDataOfPage extends FormData {
      constructor() {
        super();
        this.append('text', 'Hello');
      }
    }
    let client: BotClient | undefined;
    const create = (options: BotClientOptions) => {
      client = createBotClient({
        ...options,
        baseUrl: relay.url,
        expert: { cookies: 'keep', ...options.expert },
      });
      return client;
    };
    let signIns = 0;
    let shown: readonly string[] = [];
    const statuses = new Set<string>();
    await run(
      ...[create, createChannel, textOf, form, FormDataOfPage, () => signIns++],
      (messages: readonly string[]) => {
        shown = messages;
      },
      (status: string) => statuses.add(status),
    );
    await until(() => signIns > 0);
    await client?.signIn(USER.name, USER.password);
    await form.onsubmit({ preventDefault() {} });
    await until(() => shown.at(-1) === 'assistant: You said: Hello');
    expect(shown).toEqual(['user: Hello', 'assistant: You said: Hello']);
    expect([...statuses]).toEqual(expect.arrayContaining(['ready', 'submitted', 'streaming']));
  });
});

describe('the snippet for a project of Vite', () => {
  const run = snippet('vite', 'createBotClient', 'prompt', 'document');

  test('signs in and shows the answer', async () => {
    const create = (options: BotClientOptions) =>
      createBotClient({ ...options, baseUrl: relay.url, expert: { cookies: 'keep', ...options.expert } });
    const asked: string[] = [];
    const prompt = (what: string) => (asked.push(what) === 1 ? USER.name : USER.password);
    const shown: string[] = [];
    await run(create, prompt, { body: { append: (text: string) => shown.push(text) } });
    expect(asked).toEqual(['User', 'Password']);
    expect(shown.join('')).toBe('You said: Hello');
  });
});

describe('the event of its own that the document has', () => {
  const OWN = /<!-- snippet: own-event -->\n```json\n(.*)\n```/.exec(documents)?.[1] ?? '';
  const guards = { 'acme.chart': (fact: unknown) => Array.isArray((fact as { points?: unknown }).points) };

  test('is a part of the answer', async () => {
    const bot = await startBotRuns();
    const front = await startRelay(bot.upstream.url, { BOTS: 'demo/echo' });
    try {
      const client = createBotClient({
        ...{ baseUrl: front.url, bot: 'demo/echo', expert: { cookies: 'keep' } },
        guards: guards as Guards,
      });
      await client.signIn(USER.name, USER.password);
      const sent = createChannel(client).send('Hello');
      const run = await bot.run('Hello');
      run.begin();
      run.write(`data: ${OWN}\n\n`);
      run.finish();
      const { fact } = JSON.parse(OWN) as { fact: unknown };
      expect((await sent)?.parts).toEqual([{ type: 'data-acme.chart', data: fact }]);
    } finally {
      await front.close();
      await bot.upstream.close();
    }
  });
});
