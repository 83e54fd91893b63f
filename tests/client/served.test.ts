import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { errorWords } from '../../src/client/element/error-text.ts';
import { ARABIC } from '../../src/client/element/words/arabic.ts';
import { ENGLISH } from '../../src/client/element/words/english.ts';
import { fill, languageOf } from '../../src/client/element/words/words.ts';
import { CHAT_COLORS, CHAT_WORDS, contrast } from '../../src/config/chat-file.ts';
import { type ConfigError, loadConfig } from '../../src/config/config.ts';
import { PROBLEMS } from '../../src/errors.ts';
import { demoBanner } from '../../src/process/demo.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { TARBALL } from '../harness/clients/consumer.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

const NOWHERE = 'http://127.0.0.1:9';
const PACKAGE = '/client/bot-relay-client.tgz';
const bytes = readFileSync(TARBALL);
let folder: string;
let file: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-chat-file-'));
  file = join(folder, 'chat.json');
});
afterAll(() => rmSync(folder, { recursive: true }));

let relay: TestRelay | undefined;
afterEach(async () => {
  await relay?.close();
  relay = undefined;
});

const CHAT = {
  title: 'Parcels & <more>',
  logo: 'https://images.example.com/logo.svg',
  suggestions: ['Where is my parcel?'],
  colors: { light: { accent: '#7a1fa2' }, dark: { accent: '#e1b3ff' } },
  words: { empty: 'What can we do for you?' },
};

/** The problems of a configuration. */
function problemsOf(environment: Record<string, string>): readonly string[] {
  try {
    loadConfig(environment);
    return [];
  } catch (error) {
    return (error as ConfigError).problems;
  }
}

async function start(environment: Record<string, string> = {}): Promise<TestRelay> {
  relay = await startRelay(NOWHERE, environment);
  return relay;
}

/** The answer of a relay with this file, or with none. */
async function answered(path: string, environment: Record<string, string>, chat?: unknown) {
  if (chat !== undefined) writeFileSync(file, JSON.stringify(chat));
  const own = chat === undefined ? {} : { CHAT_FILE: file };
  const { port } = await start({ BOTS: 'acme/helper,acme/*', ...environment, ...own });
  return call(port, path);
}

describe('GET /client/bot-chat.json', () => {
  test('says how users sign in and which operations are on, and not which bots there are', async () => {
    const { status, headers, body } = await answered('/client/bot-chat.json', {});
    expect({ status, type: headers['content-type'] }).toEqual({ status: 200, type: 'application/json' });
    expect(JSON.parse(body)).toEqual({ signIn: 'password', operations: ['message', 'chat'] });
  });

  test('has what the file says, and with the page the bots that have a name', async () => {
    const { body } = await answered('/client/bot-chat.json', { CHAT_PAGE: 'on' }, CHAT);
    const { title, logo, suggestions, words } = CHAT;
    expect(JSON.parse(body)).toMatchObject({ bots: ['acme/helper'], title, logo, suggestions, words });
    expect(JSON.parse(body)).not.toHaveProperty('colors');
  });
});

const BUILT = join(ROOT, 'dist/bot-chat');
const built = (name: string) => readFileSync(join(BUILT, name));
/** What the element loads later. */
const LATER = readdirSync(BUILT).filter((name) => name.endsWith('.js') && name !== 'bot-chat.js');

/** The answer with its bytes as they came. */
async function bytesOf(path: string, headers: Record<string, string> = {}) {
  const { port } = relay ?? (await start());
  return new Promise<{ readonly head: IncomingMessage; readonly bytes: Buffer }>((resolve, reject) =>
    get({ port, path, headers }, (head) => {
      const parts: Buffer[] = [];
      head
        .on('data', (part) => parts.push(part))
        .on('end', () => resolve({ head, bytes: Buffer.concat(parts) }));
    }).on('error', reject),
  );
}

describe('GET /client/bot-chat.js', () => {
  test('is the built file, which a cache asks for each time', async () => {
    const { headers, body } = await answered('/client/bot-chat.js', { BASE_PATH: '' });
    expect(body).toBe(String(built('bot-chat.js')));
    expect(headers).toMatchObject({
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': 'no-cache',
      vary: 'Accept-Encoding',
      'x-content-type-options': 'nosniff',
    });
    expect(headers).not.toHaveProperty('content-encoding');
  });

  test('is compressed as the client takes it, each time with an ETag of its own', async () => {
    const tags: string[] = [];
    for (const [takes, coding, bytes, opened] of [
      ['gzip, deflate, br, zstd', 'br', built('bot-chat.js.br'), brotliDecompressSync],
      ['gzip, br;q=0', 'gzip', built('bot-chat.js.gz'), gunzipSync],
      ['identity', undefined, built('bot-chat.js'), Buffer.from],
    ] as const) {
      const answer = await bytesOf('/client/bot-chat.js', { 'Accept-Encoding': takes });
      expect(answer.head.headers['content-encoding']).toBe(coding);
      expect(answer.head.headers['content-length']).toBe(String(bytes.length));
      expect(answer.head.headers.vary).toBe('Accept-Encoding');
      expect(answer.bytes.equals(bytes)).toBe(true);
      expect(opened(answer.bytes).equals(built('bot-chat.js'))).toBe(true);
      const etag = String(answer.head.headers.etag);
      const known = { 'Accept-Encoding': takes, 'If-None-Match': [...tags, etag].join(', ') };
      const again = await bytesOf('/client/bot-chat.js', known);
      expect([again.head.statusCode, again.bytes.length]).toEqual([304, 0]);
      expect(again.head.headers).toMatchObject({
        etag,
        vary: 'Accept-Encoding',
        'cache-control': 'no-cache',
      });
      const other = { 'Accept-Encoding': takes, 'If-None-Match': tags.join(', ') };
      expect((await bytesOf('/client/bot-chat.js', other)).head.statusCode).toBe(200);
      tags.push(etag);
    }
    expect(new Set(tags).size).toBe(3);
  });

  test('loads other files later, by names with a hash, which a cache keeps', async () => {
    expect(LATER.map((name) => name.replace(/-[A-Z0-9]{8}\.js$/, ''))).toEqual([
      'arabic',
      'code-colors',
      'math-element',
    ]);
    for (const name of LATER) {
      expect(String(built('bot-chat.js'))).toContain(`import("./${name}")`);
      const { head, bytes } = await bytesOf(`/client/${name}`, { 'Accept-Encoding': 'br' });
      expect(head.headers).toMatchObject({
        'content-type': 'text/javascript; charset=utf-8',
        'cache-control': 'public, max-age=31536000, immutable',
        'content-encoding': 'br',
        vary: 'Accept-Encoding',
      });
      expect(bytes.equals(built(`${name}.br`))).toBe(true);
    }
  });

  test.each(['math-element-AAAAAAAA.js', 'bot-chat.js.br'])(
    'has no %s, which no cache keeps',
    async (name) => {
      const answer = await answered(`/client/${name}`, {});
      expectProblem(answer, 404, 'not_found');
      expect(answer.headers['cache-control']).toBe('no-store');
    },
  );

  test('has the licenses of what it contains beside it', async () => {
    const { headers, body } = await answered('/client/bot-chat.txt', {});
    expect(body).toBe(String(built('bot-chat.txt')));
    expect(headers).toMatchObject({ 'content-type': 'text/plain; charset=utf-8' });
  });
});

describe('the page with the chat', () => {
  test('is refused if no bot has a name of its own, since it would have none to talk with', () => {
    expect(problemsOf({ CHAT_PAGE: 'on', BOTS: 'acme/*,*/helper' })).toEqual([
      'CHAT_PAGE is on, but each entry of BOTS has a *: the page would have no bot to talk with',
    ]);
    expect(problemsOf({ CHAT_PAGE: 'on', BOTS: 'acme/*,acme/helper' })).toEqual([]);
  });

  test('is not there unless it is turned on', async () => {
    expectProblem(await answered('/chat', {}), 404, 'not_found');
    expectProblem(await call(relay?.port ?? 0, '/'), 404, 'not_found');
  });

  test('is also at the root, and its links lead to files that are there', async () => {
    const { headers, body } = await answered('/chat', { CHAT_PAGE: 'on' });
    const port = relay?.port ?? 0;
    const page = await call(port, '/');
    expect(page).toMatchObject({
      status: 200,
      headers: { 'content-type': 'text/html; charset=utf-8' },
      body,
    });
    expect(page.headers['content-security-policy']).toBe(headers['content-security-policy']);
    const links = [...body.matchAll(/\s(?:src|href)="\.([^"]+)"/g)].map(([, path = '']) => path);
    expect(links).toHaveLength(3);
    for (const path of links) expect([path, (await call(port, path)).status]).toEqual([path, 200]);
  });

  test('answers GET and HEAD at exactly its path, which the log names', async () => {
    const { port, logLine } = await start({ CHAT_PAGE: 'on' });
    expect(await call(port, '/', { method: 'HEAD' })).toMatchObject({ status: 200, body: '' });
    const refused = await call(port, '/', { method: 'POST' });
    expectProblem(refused, 405, 'method_not_allowed');
    expect(refused.headers.allow).toBe('GET, HEAD');
    for (const path of ['/index.html', '//', '/chat/', '/client/', '/client/bot-chat.ts', '/__proto__'])
      expect([path, (await call(port, path)).status]).toEqual([path, 404]);
    const line = await logLine(({ method, route }) => method === 'HEAD' && route === '/');
    expect(line).toMatchObject({ status: 200, outcome: 'ok' });
  });

  test('is below the base path, to which the path without its last slash leads', async () => {
    const { body } = await answered('/chat-api/chat', { CHAT_PAGE: 'on', BASE_PATH: '/chat-api' });
    expect(body).toContain('src="./client/bot-chat.js"');
    const port = relay?.port ?? 0;
    expect(await call(port, '/chat-api/')).toMatchObject({ status: 200, body });
    expect(await call(port, '/chat-api')).toMatchObject({ status: 307, headers: { location: '/chat-api/' } });
    expectProblem(await call(port, '/'), 404, 'not_found');
  });

  test('runs only scripts of its own, and has the escaped title', async () => {
    const { headers, body } = await answered(
      '/chat-api/chat',
      { CHAT_PAGE: 'on', BASE_PATH: '/chat-api' },
      CHAT,
    );
    expect(headers['content-security-policy']).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: https://images.example.com; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    );
    expect(body).toContain('<title>Parcels &#38; &#60;more&#62;</title>');
    expect(body).not.toMatch(/ style=|<style|<script>|javascript:/);
  });

  test('has the language and the colours of the file', async () => {
    const { body: page } = await answered('/chat', { CHAT_PAGE: 'on' });
    expect(page).toContain('<html lang="en" dir="ltr">');
    await relay?.close();
    const { body } = await answered('/client/bot-chat.css', { CHAT_PAGE: 'on' }, { ...CHAT, lang: 'ar' });
    expect(body).toContain('--bot-chat-accent: #7a1fa2;');
    expect(body).toContain('--bot-chat-accent-dark: #e1b3ff;');
    expect((await call(relay?.port ?? 0, '/chat')).body).toContain('<html lang="ar" dir="rtl">');
  });
});

const names = Object.keys(ENGLISH) as (keyof typeof ENGLISH)[];
const valuesIn = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();

describe('the words of the chat', () => {
  test('have the same values in each language', () => {
    const inEnglish = names.map((name) => [name, valuesIn(ENGLISH[name])]);
    expect(names.map((name) => [name, valuesIn(ARABIC[name])])).toEqual(inEnglish);
    expect(inEnglish.flatMap(([, values]) => values).length).toBeGreaterThan(10);
  });

  test('are those of the language without its region, and English where there are none', async () => {
    const { lang, dir, words } = await languageOf('AR-eg');
    expect({ lang, dir, send: words.send }).toEqual({ lang: 'ar', dir: 'rtl', send: ARABIC.send });
    for (const other of ['de', '', 'constructor'])
      expect(await languageOf(other)).toEqual({ lang: 'en', dir: 'ltr', words: ENGLISH });
  });

  test('get their values, also if a value looks like one', () => {
    expect(fill('{a} {b} {c}', { a: '{b}', b: 2 })).toBe('{b} 2 {c}');
  });
});

describe('the words of an error', () => {
  const OWN =
    'cookie_blocked unreachable connection_lost connection_silent missing unexpected_response'.split(' ');

  test('are those of its code, of which each has some', () => {
    expect(errorWords('upstream_unreachable')).toBe('errorAway');
    expect(errorWords('upstream_rate_limited')).toBe('errorBusy');
    expect(errorWords('not_your_conversation')).toBe('errorForbidden');
    expect(errorWords('answer_lost')).toBe('errorLost');
    expect(errorWords('run_over')).toBe('errorMissing');
    expect(errorWords('session_ended')).toBe('errorSignedOut');
    expect(errorWords('internal_error')).toBe('errorOther');
    const told = [...Object.keys(PROBLEMS), ...OWN].map(errorWords);
    const sentences = names.filter((name) => /^error[A-Z]/.test(name) && name !== 'errorCode');
    expect([...new Set(told)].sort()).toEqual(sentences.sort());
  });
});

describe('CHAT_FILE', () => {
  const problemsIn = (content: string, environment: Record<string, string> = {}) => {
    writeFileSync(file, content);
    return problemsOf({ CHAT_FILE: file, ...environment });
  };

  test.each([
    ['{', 'CHAT_FILE must hold a JSON object'],
    [
      '{"titel":"x"}',
      'CHAT_FILE its content: must be an object with no more than title, lang, logo, suggestions, colors and words',
    ],
    ['{"title":""}', 'CHAT_FILE title: must not be empty'],
    [
      '{"logo":"http://images.example.com/logo.svg"}',
      'CHAT_FILE logo: must be an address that begins with https:',
    ],
    ['{"lang":"de"}', 'CHAT_FILE lang: must be en or ar'],
    ['{"suggestions":["a","b","c","d","e"]}', 'CHAT_FILE suggestions: must be at most 4'],
    ['{"colors":{"light":{"accent":"red"}}}', 'CHAT_FILE colors.light.accent: must be #rrggbb'],
    ['{"words":{"send":"Go","sent":"Gone"}}', 'CHAT_FILE words.sent: is no word of the chat'],
  ])('is refused if it is %s', (content, problem) => {
    expect(problemsIn(content)).toEqual([problem]);
  });

  test('is refused if a text could hardly be read', () => {
    expect(problemsIn('{"colors":{"light":{"text":"#777777"}}}')).toEqual([
      'CHAT_FILE colors.light: text on background has a contrast of 4.47, and needs 4.5',
      'CHAT_FILE colors.light: text on surface has a contrast of 4.14, and needs 4.5',
      'CHAT_FILE colors.light: text on own has a contrast of 3.9, and needs 4.5',
    ]);
    expect(problemsIn('{"colors":{"dark":{"accent":"#203040"}}}')).toContain(
      'CHAT_FILE colors.dark: on-accent on accent has a contrast of 1.28, and needs 4.5',
    );
    const dark = problemsIn('{"colors":{"light":{"surface":"#a3231b","own":"#1f5fbf"}}}').join();
    expect(dark).toContain('error on surface has a contrast of 1,');
    expect(dark).toContain('accent on own has a contrast of 1,');
  });

  test('is refused if it cannot be read', () => {
    expect(problemsIn('{}', { CHAT_FILE: join(folder, 'none.json') })).toEqual([
      'CHAT_FILE names a file that cannot be read (ENOENT)',
    ]);
    expect(problemsIn('{}')).toEqual([]);
  });

  test('knows the words that the chat has', () => {
    expect([...CHAT_WORDS].sort()).toEqual([...names].sort());
  });

  test('knows the colours that the style sheet has', () => {
    const css = readFileSync(join(ROOT, 'src/client/element/style/theme.ts'), 'utf8');
    const found = [...css.matchAll(/--bot-chat-([a-z-]+), (#[0-9a-f]{3,6})\)/g)].map(
      ([, name = '', color = '']) => [name, color.length === 4 ? color.replace(/[^#]/g, '$&$&') : color],
    );
    const known = Object.entries(CHAT_COLORS).flatMap(([scheme, colors]) =>
      Object.entries(colors).map(([name, color]) => [`${name}${scheme === 'dark' ? '-dark' : ''}`, color]),
    );
    expect(Object.fromEntries(found)).toEqual(Object.fromEntries(known));
  });

  test('leaves the colours of code, which can be read on the surface of the chat', () => {
    const css = readFileSync(join(ROOT, 'src/client/element/style/code.ts'), 'utf8');
    const found = [...css.matchAll(/light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)];
    expect(found.length).toBeGreaterThan(5);
    for (const [, light = '', dark = ''] of found) {
      expect(contrast(light, CHAT_COLORS.light.surface)).toBeGreaterThanOrEqual(4.5);
      expect(contrast(dark, CHAT_COLORS.dark.surface)).toBeGreaterThanOrEqual(4.5);
    }
  });
});

describe('GET /client/bot-relay-client.tgz', () => {
  test('answers with the package of the build, without a session, unless the cache has it', async () => {
    const { url, port } = await start();
    const response = await fetch(url + PACKAGE);
    const expected = { 'content-type': 'application/gzip', 'content-length': String(bytes.length) };
    expect(Object.fromEntries(response.headers)).toMatchObject({
      ...{ ...expected, 'cache-control': 'no-cache', 'x-content-type-options': 'nosniff' },
    });
    expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
    const head = await call(port, PACKAGE, { method: 'HEAD' });
    expect(head).toMatchObject({ status: 200, body: '', headers: expected });
    const posted = await call(port, PACKAGE, { method: 'POST' });
    expectProblem(posted, 405, 'method_not_allowed');
    expect(posted.headers.allow).toBe('GET, HEAD');
    const etag = String(head.headers.etag);
    expect(etag).toMatch(/^"[\w-]{43}"$/);
    const again = (cached: string) => call(port, PACKAGE, { headers: { 'If-None-Match': cached } });
    expect(await again(etag)).toMatchObject({ status: 304, body: '', headers: { etag } });
    expect(await again('"another"')).toMatchObject({ status: 200 });
  });

  test('counts for the limit of the address', async () => {
    const { port } = await start({ CLIENT_LIMIT_PER_ADDRESS: '1' });
    expect(await call(port, PACKAGE, { method: 'HEAD' })).toMatchObject({ status: 200 });
    expectProblem(await call(port, PACKAGE), 429, 'too_many_attempts');
  });
});

describe('the demo', () => {
  const BASE = 'http://localhost:3000/chat-api';
  const banner = (authMode: 'password' | 'guest' | 'oidc', bots = ['demo/echo']) =>
    demoBanner(BASE, { authMode, bots, service: { model: undefined } });
  const commandsIn = (text: string) => [...text.matchAll(/^ {4}(curl .+)$/gm)].map(([, command]) => command);
  afterAll(() => stopProcesses());

  test('offers its bots that BOTS allows, below BASE_PATH, and names no user who is not needed', async () => {
    const environment = { BASE_PATH: '/chat-api', AUTH_MODE: 'guest', BOTS: 'demo/*,acme/it"s<b>' };
    const demo = startProcess({ environment: { PORT: '0', ...environment } });
    const settings = await call(await demo.listening(), '/chat-api/client/bot-chat.json');
    const { bots, user } = JSON.parse(settings.body);
    const own = ['echo', 'guide', 'slow', 'steps', 'resume', 'tools'].map((name) => `demo/${name}`);
    expect({ bots, user }).toEqual({ bots: [...own, 'acme/it"s<b>'], user: undefined });
    await demo.waitFor(/Open http:\/\/localhost:\d+\/chat-api\/ in a browser/);
  });

  test('prints how to sign in, and a password only with AUTH_MODE=password', () => {
    expect(commandsIn(banner('password'))[0]).toContain(`"password":"demo"}' ${BASE}/auth/login`);
    expect(commandsIn(banner('guest'))[0]).toBe(`curl -c cookies.txt -X POST ${BASE}/auth/guest`);
    expect(banner('oidc')).toContain(`${BASE}/auth/callback must be registered`);
    expect(commandsIn(banner('oidc'))).toEqual([]);
    for (const mode of ['guest', 'oidc'] as const)
      expect(banner(mode)).not.toMatch(/password|demo \/ demo|undefined/);
  });

  test.each([
    ['acme/helper,demo/guide', 'demo/guide'],
    ['*/guide', 'demo/guide'],
    ['*/*', 'demo/echo'],
    // The demo does not have these bots, but BOTS allows them, so that the refusal can be seen.
    ['acme/*', 'acme/echo'],
    ["acme/it's-(me)$x", 'acme/it%27s-%28me%29%24x'],
  ])('prints, with BOTS=%s, how to talk with %s', (patterns, bot) => {
    const path = bot.replace('/', '/bot-provider/');
    const [, command] = commandsIn(banner('guest', patterns.split(',')));
    expect(command).toContain(` ${BASE}/generic/ns/${path}/message/sse`);
  });
});
