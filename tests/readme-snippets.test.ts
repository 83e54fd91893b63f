import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { type BotClientOptions, createBotClient, RelayError } from '../src/client/bot-client.ts';
import { type BotService, startBotService } from '../src/demo/bot-service.ts';
import { CANARY, startRelay, type TestRelay, USER } from './support/relay.ts';

/** What fetch-event-source needs of a page. */
Object.assign(globalThis, { window: globalThis, document: { removeEventListener: () => {} } });

const AsyncFunction = (async () => {}).constructor as new (
  ...parts: string[]
) => (...values: unknown[]) => Promise<void>;

/** The README's snippet `name` as a function of what a page has around it. */
function snippet(name: string, ...around: string[]) {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const [, code = ''] = readme.match(new RegExp(`<!-- snippet: ${name} -->\n\`\`\`js\n([^]*?)\`\`\``)) ?? [];
  if (code === '') throw new Error(`the README has no snippet ${name}`);
  return new AsyncFunction(...around, code.replace(/^import .*$/gm, ''));
}

let botService: BotService;
let relay: TestRelay;
beforeEach(async () => {
  botService = await startBotService({ keys: [CANARY.key], pace: { wordMs: 50 } });
  relay = await startRelay(botService.url, { BOTS: 'demo/echo' });
});
afterEach(async () => {
  await relay.close();
  await botService.close();
});

/** How many messages the page has sent. */
let sent: number;
beforeEach(() => {
  sent = 0;
});

/** The page's `fetch`: it has an origin and sends the cookie. */
function pageFetch(cookie: string) {
  return (path: string, init: RequestInit) => {
    if (path.startsWith('/generic')) sent++;
    return fetch(relay.url + path, { ...init, headers: { ...(init.headers as object), Cookie: cookie } });
  };
}

describe('the snippet with plain fetch', () => {
  const run = snippet('fetch', 'fetch', 'show', 'EventSourceParserStream');

  test('shows the answer piece by piece', async () => {
    const shown: string[] = [];
    await run(pageFetch(await relay.signIn()), (delta: string) => shown.push(delta), EventSourceParserStream);
    expect(shown).toEqual(['You', ' said:', ' Hello']);
  });

  test('throws the problem of a message that is refused', async () => {
    await expect(run(pageFetch(''), () => {}, EventSourceParserStream)).rejects.toMatchObject({
      status: 401,
      code: 'unauthenticated',
      requestId: expect.any(String),
    });
  });

  test('throws when the stream breaks', async () => {
    const shown: string[] = [];
    const showThenBreak = (delta: string) => {
      shown.push(delta);
      void botService.close();
    };
    await expect(
      run(pageFetch(await relay.signIn()), showThenBreak, EventSourceParserStream),
    ).rejects.toMatchObject({ code: 'upstream_stream_broken', requestId: expect.any(String) });
    // On a busy machine a word can come while the bot service is told to close.
    expect(shown[0]).toBe('You');
    expect(shown).not.toContain(' Hello');
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
    const create = (options: BotClientOptions) =>
      createBotClient({
        ...options,
        fetch(path, init) {
          const headers = new Headers(init?.headers);
          if (String(path).startsWith('/generic')) {
            sent++;
            if (cookieOfMessages !== undefined) headers.set('Cookie', cookieOfMessages);
          }
          return fetch(relay.url + String(path), { ...init, headers });
        },
      });
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

describe('the snippet with an existing library', () => {
  const run = snippet('library', 'fetchEventSource', 'show');
  const withFetch = (cookie: string) => (path: string, options: object) =>
    fetchEventSource(path, { ...options, fetch: pageFetch(cookie) as typeof fetch });

  test('shows the answer piece by piece', async () => {
    const shown: string[] = [];
    await run(withFetch(await relay.signIn()), (delta: string) => shown.push(delta));
    expect(shown).toEqual(['You', ' said:', ' Hello']);
  });

  test('throws the problem of a message that is refused, which it sends once', async () => {
    await expect(run(withFetch(''), () => {})).rejects.toMatchObject({
      status: 401,
      code: 'unauthenticated',
      requestId: expect.any(String),
    });
    expect(sent).toBe(1);
  });

  test('throws when the stream breaks, and sends nothing again', async () => {
    const shown: string[] = [];
    const showThenBreak = (delta: string) => {
      shown.push(delta);
      void botService.close();
    };
    const ended = run(withFetch(await relay.signIn()), showThenBreak);
    await expect(ended).rejects.toMatchObject({ code: 'upstream_stream_broken' });
    expect(shown).not.toContain(' Hello');
    expect(sent).toBe(1);
  });
});
