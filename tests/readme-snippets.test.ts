import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { type BotService, startBotService } from '../src/demo/bot-service.ts';
import { CANARY, startRelay, type TestRelay } from './support/relay.ts';

const AsyncFunction = (async () => {}).constructor as new (
  ...parts: string[]
) => (...values: unknown[]) => Promise<void>;

/** The README's snippet `name` as a function of what a page has around it. */
function snippet(name: string, ...around: string[]) {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const [, code = ''] = readme.match(new RegExp(`<!-- snippet: ${name} -->\n\`\`\`js\n([^]*?)\`\`\``)) ?? [];
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

/** The page's `fetch`: it has an origin and sends the cookie. */
function pageFetch(cookie: string) {
  return (path: string, init: RequestInit) =>
    fetch(relay.url + path, { ...init, headers: { ...(init.headers as object), Cookie: cookie } });
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
