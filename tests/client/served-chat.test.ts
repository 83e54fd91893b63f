import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { ENGLISH } from '../../src/client/element/words-en.ts';
import { CHAT_COLORS, CHAT_WORDS, contrast } from '../../src/config/chat-file.ts';
import { type ConfigError, loadConfig } from '../../src/config/config.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

const NOWHERE = 'http://127.0.0.1:9';
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
  suggestions: ['Where is my parcel?'],
  colors: { light: { accent: '#7a1fa2' }, dark: { accent: '#e1b3ff' } },
  words: { empty: 'What can we do for you?' },
};

/** The answer of a relay with this file, or with none. */
async function answered(path: string, environment: Record<string, string>, chat?: unknown) {
  if (chat !== undefined) writeFileSync(file, JSON.stringify(chat));
  const own = chat === undefined ? {} : { CHAT_FILE: file };
  relay = await startRelay(NOWHERE, { BOTS: 'acme/helper,acme/*', ...environment, ...own });
  return call(relay.port, path);
}

describe('GET /client/bot-chat.json', () => {
  test('says how users sign in and which operations are on, and not which bots there are', async () => {
    const { status, headers, body } = await answered('/client/bot-chat.json', {});
    expect({ status, type: headers['content-type'] }).toEqual({ status: 200, type: 'application/json' });
    expect(JSON.parse(body)).toEqual({ signIn: 'password', operations: ['message', 'chat'] });
  });

  test('has what the file says, and with the page the bots that have a name', async () => {
    const { body } = await answered('/client/bot-chat.json', { CHAT_PAGE: 'on' }, CHAT);
    const { title, suggestions, words } = CHAT;
    expect(JSON.parse(body)).toMatchObject({ bots: ['acme/helper'], title, suggestions, words });
    expect(JSON.parse(body)).not.toHaveProperty('colors');
  });
});

describe('GET /client/bot-chat.js', () => {
  test('is the built file, which a cache asks for each time', async () => {
    const { headers, body } = await answered('/client/bot-chat.js', { BASE_PATH: '' });
    expect(body).toBe(readFileSync(join(ROOT, 'dist/bot-chat.js'), 'utf8'));
    expect(headers).toMatchObject({
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': 'no-cache',
      'x-content-type-options': 'nosniff',
    });
  });

  test('has the licenses of what it contains beside it', async () => {
    const { headers, body } = await answered('/client/bot-chat.txt', {});
    expect(body).toBe(readFileSync(join(ROOT, 'dist/bot-chat.txt'), 'utf8'));
    expect(headers).toMatchObject({ 'content-type': 'text/plain; charset=utf-8' });
  });
});

describe('the page with the chat', () => {
  test('is refused if no bot has a name of its own, since it would have none to talk with', () => {
    const problemsOf = (bots: string) => {
      try {
        loadConfig({ CHAT_PAGE: 'on', BOTS: bots });
        return [];
      } catch (error) {
        return (error as ConfigError).problems;
      }
    };
    expect(problemsOf('acme/*,*/helper')).toEqual([
      'CHAT_PAGE is on, but each entry of BOTS has a *: the page would have no bot to talk with',
    ]);
    expect(problemsOf('acme/*,acme/helper')).toEqual([]);
  });

  test('is not there unless it is turned on', async () => {
    expectProblem(await answered('/chat', {}), 404, 'not_found');
  });

  test('runs only scripts of its own, and has the escaped title', async () => {
    const { headers, body } = await answered(
      '/chat-api/chat',
      { CHAT_PAGE: 'on', BASE_PATH: '/chat-api' },
      CHAT,
    );
    expect(headers['content-security-policy']).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    );
    expect(body).toContain('<title>Parcels &#38; &#60;more&#62;</title>');
    expect(body).not.toMatch(/ style=|<style|<script>|javascript:/);
  });

  test.each([
    [{}, '<html lang="en" dir="ltr">'],
    [{ lang: 'ar' }, '<html lang="ar" dir="rtl">'],
  ])('is in the language of the file: %j', async (chat, html) => {
    const { body } = await answered('/chat', { CHAT_PAGE: 'on' }, chat);
    expect(body).toContain(html);
  });

  test('has the colours of the file', async () => {
    const { body } = await answered('/client/bot-chat.css', { CHAT_PAGE: 'on' }, CHAT);
    expect(body).toContain('--bot-chat-accent: #7a1fa2;');
    expect(body).toContain('--bot-chat-accent-dark: #e1b3ff;');
  });
});

describe('CHAT_FILE', () => {
  /** The problems of a configuration with this file. */
  function problemsOf(content: string, environment: Record<string, string> = {}): readonly string[] {
    writeFileSync(file, content);
    try {
      loadConfig({ CHAT_FILE: file, ...environment });
      return [];
    } catch (error) {
      return (error as ConfigError).problems;
    }
  }

  test.each([
    ['{', 'CHAT_FILE must hold a JSON object'],
    [
      '[]',
      'CHAT_FILE its content: must be an object with no more than title, lang, suggestions, colors and words',
    ],
    [
      '{"titel":"x"}',
      'CHAT_FILE its content: must be an object with no more than title, lang, suggestions, colors and words',
    ],
    ['{"title":""}', 'CHAT_FILE title: must not be empty'],
    ['{"lang":"de"}', 'CHAT_FILE lang: must be en or ar'],
    ['{"suggestions":["a","b","c","d"]}', 'CHAT_FILE suggestions: must be at most 3'],
    ['{"colors":{"light":{"accent":"red"}}}', 'CHAT_FILE colors.light.accent: must be #rrggbb'],
  ])('is refused if it is %s', (content, problem) => {
    expect(problemsOf(content)).toEqual([problem]);
  });

  test('is refused if a text could hardly be read', () => {
    expect(problemsOf('{"colors":{"light":{"text":"#777777"}}}')).toEqual([
      'CHAT_FILE colors.light: text on background has a contrast of 4.13, and needs 4.5',
      'CHAT_FILE colors.light: text on surface has a contrast of 4.47, and needs 4.5',
      'CHAT_FILE colors.light: text on own has a contrast of 3.73, and needs 4.5',
    ]);
    expect(problemsOf('{"colors":{"dark":{"accent":"#203040"}}}')).toContain(
      'CHAT_FILE colors.dark: on-accent on accent has a contrast of 1.28, and needs 4.5',
    );
    const dark = problemsOf('{"colors":{"light":{"surface":"#9f2018","own":"#2459a9"}}}').join();
    expect(dark).toContain('error on surface has a contrast of 1,');
    expect(dark).toContain('accent on own has a contrast of 1,');
  });

  test('is refused if it cannot be read', () => {
    expect(problemsOf('{}', { CHAT_FILE: join(folder, 'none.json') })).toEqual([
      'CHAT_FILE names a file that cannot be read (ENOENT)',
    ]);
    expect(problemsOf('{}')).toEqual([]);
  });

  test('is refused if it has a word that the chat has not', () => {
    expect(problemsOf('{"words":{"send":"Go","sent":"Gone"}}')).toEqual([
      'CHAT_FILE words.sent: is no word of the chat',
    ]);
  });

  test('knows the words that the chat has', () => {
    expect([...CHAT_WORDS].sort()).toEqual(Object.keys(ENGLISH).sort());
  });

  test('knows the colours that the style sheet has', () => {
    const css = readFileSync(join(ROOT, 'src/client/element/chat-style.ts'), 'utf8');
    const found = [...css.matchAll(/--bot-chat-([a-z-]+), (#[0-9a-f]{3,6})\)/g)].map(
      ([, name = '', color = '']) => [name, color.length === 4 ? color.replace(/[^#]/g, '$&$&') : color],
    );
    const known = Object.entries(CHAT_COLORS).flatMap(([scheme, colors]) =>
      Object.entries(colors).map(([name, color]) => [`${name}${scheme === 'dark' ? '-dark' : ''}`, color]),
    );
    expect(Object.fromEntries(found)).toEqual(Object.fromEntries(known));
  });

  test('is judged by the formula of WCAG', () => {
    expect(contrast('#000000', '#ffffff')).toBe(21);
    expect(contrast('#777777', '#ffffff')).toBeCloseTo(4.478, 3);
    expect(contrast('#ffffff', '#777777')).toBe(contrast('#777777', '#ffffff'));
  });
});
