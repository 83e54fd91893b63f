import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readBotsFile } from '../../src/bots/bots-file.ts';
import { type ConfigError, loadConfig } from '../../src/config/config.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-bots-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const BOTS = ['acme/*', 'other/helper'];

function write(name: string, content: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

const read = (content: unknown) => readBotsFile(write('bots.json', content), BOTS);

describe('a bots file', () => {
  test('gives bots keys, inline or from a file, and a rate limit', () => {
    mkdirSync(join(folder, 'keys'));
    const keysFile = write('keys/helper', 'key-3\nkey-4\n');
    const { own, problems, keyFiles } = read({
      'acme/one': { keys: ['key-1', 'key,2', 'key-1'], rateLimit: 3 },
      'other/helper': { keysFile: 'keys/helper' },
      'acme/two': { keysFile },
      '*/helper': { rateLimit: 1_000_000 },
    });
    expect(problems).toEqual([]);
    expect(keyFiles).toEqual([keysFile, keysFile]);
    expect(own['acme/one']?.keys?.map((key) => key.open())).toEqual(['key-1', 'key,2']);
    expect(own['other/helper']?.keys?.map((key) => key.open())).toEqual(['key-3', 'key-4']);
    expect(own['acme/two']?.keys?.map((key) => key.open())).toEqual(['key-3', 'key-4']);
    expect(own['acme/one']?.rateLimit).toBe(3);
    expect(own['*/helper']).toEqual({ rateLimit: 1_000_000 });
  });

  const LIMIT = 'must be a whole number from 1 to 1000000';
  const HEADER = 'holds a value with white space or characters that no header can carry';
  const OBJECT = 'must hold a JSON object with an entry per bot';
  test.each<[string, unknown, string]>([
    ['BOTS_FILE names an empty file', '', ''],
    [`BOTS_FILE ${OBJECT}`, '{"acme/one": {"keys": ["canary-key"', ''],
    [`BOTS_FILE ${OBJECT}`, ['canary'], ''],
    ['BOTS_FILE: entry 1 is not named namespace/bot', { canary: { rateLimit: 1 } }, ''],
    ['must be an object', 'canary', '.*'],
    ['has ratelimits, which is not known', { rateLimit: 1, ratelimits: 'canary' }, '.*'],
    ['sets nothing', {}, ''],
    ['keys must not be an empty list', { keys: [] }, ''],
    ['keys must be a list', { keys: 'canary' }, ''],
    ['keys must hold strings', { keys: [1, 2] }, ''],
    [`keys ${HEADER}`, { keys: ['canary key', 'canary\n'] }, ''],
    ['has both keys and keysFile', { keys: ['canary'], keysFile: 'x' }, ''],
    ['keysFile must be a path', { keysFile: '' }, ''],
    ['keysFile names a file that cannot be read \\(ENOENT\\)', { keysFile: 'canary' }, ''],
    [`rateLimit ${LIMIT}`, { rateLimit: '5' }, ''],
    [`rateLimit ${LIMIT}`, { rateLimit: 0 }, ''],
    [`rateLimit ${LIMIT}`, { rateLimit: 1.5 }, ''],
  ])('has one problem, which shows no value: %s', (problem, content, more) => {
    const isWhole = problem.startsWith('BOTS_FILE');
    const { problems } = read(isWhole ? content : { 'acme/one': content });
    const expected = `^${isWhole ? '' : 'BOTS_FILE: acme/one '}${problem}${more}$`;
    expect(problems).toEqual([expect.stringMatching(expected)]);
    expect(problems.join()).not.toMatch(/canary/);
  });

  test('does not show a bot that is not on the list, and does not look like a name', () => {
    const bots = { 'acme/one': { rateLimit: 1 }, [`canary/${'k'.repeat(33)}`]: { rateLimit: 1 } };
    expect(read(bots).problems).toEqual(['BOTS_FILE: entry 2 is a bot that BOTS does not allow']);
  });

  test.each(['acmee/helper', 'other/helpers', 'others/*', '*/helpers', 'zoë/bot-1.2_a'])(
    'with the bot %s, which no bot of the list has, names it',
    (name) => {
      expect(
        readBotsFile(write('bots.json', { [name]: { rateLimit: 1 } }), ['acme/one', 'other/helper']),
      ).toMatchObject({ problems: [`BOTS_FILE: ${name} is a bot that BOTS does not allow`] });
    },
  );

  test('with a key file that cannot be used has a problem', () => {
    const keysFile = write('spaces', 'canary key\ncanary other');
    const { problems } = read({ 'acme/one': { keysFile } });
    expect(problems).toEqual([
      'BOTS_FILE: acme/one keysFile holds a value with white space or characters that no header can carry',
    ]);
  });

  test('shows all its problems at once', () => {
    const { problems } = read({ 'acme/one': { keys: [], rateLimit: 0 }, 'acme/two': {}, 'no/bot': {} });
    expect(problems).toHaveLength(5);
  });
});

describe('BOTS_FILE', () => {
  const environment = {
    UPSTREAM_BASE_URL: 'http://localhost:1',
    UPSTREAM_API_KEYS: 'canary-key',
    BOTS: 'acme/helper',
  };
  const problemsOf = (variables: Record<string, string>) => {
    try {
      return loadConfig(variables) && [];
    } catch (error) {
      return (error as ConfigError).problems;
    }
  };

  test('is part of the configuration and its problems', () => {
    const BOTS_FILE = write('good.json', { 'acme/helper': { keys: ['own'], rateLimit: 2 } });
    const { upstream } = loadConfig({ ...environment, BOTS_FILE });
    expect(upstream.own['acme/helper']).toMatchObject({ rateLimit: 2 });
    expect(Object.isFrozen(upstream.own['acme/helper']?.keys)).toBe(true);
    expect(problemsOf({ ...environment, BOTS: 'acme/other', BOTS_FILE, PORT: 'x' })).toEqual([
      'PORT must be a whole number from 0 to 65535',
      'BOTS_FILE: acme/helper is a bot that BOTS does not allow',
    ]);
  });

  test('needs a bot service', () => {
    const BOTS_FILE = write('demo.json', { 'demo/echo': { rateLimit: 2 } });
    expect(problemsOf({ BOTS_FILE, BOTS: 'demo/echo' })).toEqual([
      'UPSTREAM_BASE_URL must be set with BOTS_FILE',
    ]);
    expect(problemsOf({ BOTS_FILE: 'missing', BOTS: 'demo/echo' })).toEqual([
      'BOTS_FILE names a file that cannot be read (ENOENT)',
      'UPSTREAM_BASE_URL must be set with BOTS_FILE',
    ]);
  });
});
