import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { keysOf, overlap, patternsFor, rateLimitOf } from '../../src/bots/bot-settings.ts';
import { readBotsFile } from '../../src/bots/bots-file.ts';
import { type ConfigError, loadConfig } from '../../src/config/config.ts';
import { secret } from '../../src/secret.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';

let folder: string;
beforeAll(() => {
  folder = freshFolder();
});
afterAll(() => stopProcesses());

function write(name: string, content: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

describe('the patterns that match', () => {
  test.each([
    ['acme/helper', ['acme/helper', 'acme/*', '*/helper', '*/*']],
    ['acme/*', ['acme/*', '*/*']],
    ['*/helper', ['*/helper', '*/*']],
    ['*/*', ['*/*']],
  ])('all of %s are in order, the most specific first', (name, patterns) => {
    expect(patternsFor(name)).toEqual(patterns);
  });

  test.each([
    ['acme/*', 'acme/helper', true],
    ['acme/*', '*/helper', true],
    ['*/*', 'acme/helper', true],
    ['acme/helper', 'acme/other', false],
    ['acme/*', 'other/*', false],
    ['*/helper', 'acme/other', false],
  ])('%s and %s overlap: %s', (one, other, expected) => {
    expect([overlap(one, other), overlap(other, one)]).toEqual([expected, expected]);
  });

  test.each([
    ['acme/helper', 'namespace', 1],
    ['acme/exact', 'exact', 2],
    ['acme/other', 'namespace', 2],
    ['other/helper', 'name', 3],
    ['other/other', 'all', 3],
  ])('%s give it the keys "%s" and the limit %d, each from the most specific one', (bot, keys, limit) => {
    const [all, exact, namespace, name] = ['all', 'exact', 'namespace', 'name'].map((one) => [secret(one)]);
    const settings = {
      apiKeys: all ?? [],
      own: {
        'acme/helper': { rateLimit: 1 },
        'acme/exact': { keys: exact ?? [] },
        'acme/*': { keys: namespace ?? [], rateLimit: 2 },
        '*/helper': { keys: name ?? [] },
        '*/*': { rateLimit: 3 },
      },
    };
    expect(keysOf(settings, bot).map((key) => key.open())).toEqual([keys]);
    expect(rateLimitOf(settings, bot)).toBe(limit);
    expect(rateLimitOf({ apiKeys: [], own: {} }, bot)).toBeUndefined();
  });
});

describe('a bots file', () => {
  const read = (content: unknown, bots = ['acme/*', 'other/helper']) =>
    readBotsFile(write('bots.json', content), bots);

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
    const keys = (bot: string) => own[bot]?.keys?.map((key) => key.open());
    expect(['acme/one', 'other/helper', 'acme/two'].map(keys)).toEqual([
      ['key-1', 'key,2'],
      ['key-3', 'key-4'],
      ['key-3', 'key-4'],
    ]);
    expect(own['acme/one']?.rateLimit).toBe(3);
    expect(own['*/helper']).toEqual({ rateLimit: 1_000_000 });
  });

  const LIMIT = 'must be a whole number from 1 to 1000000';
  const HEADER = 'holds a value with white space or characters that no header can carry';
  const OBJECT = 'must hold a JSON object with an entry per bot';
  test.each<[string, unknown, string?]>([
    ['BOTS_FILE names an empty file', ''],
    [`BOTS_FILE ${OBJECT}`, '{"acme/one": {"keys": ["canary-key"'],
    [`BOTS_FILE ${OBJECT}`, ['canary']],
    ['BOTS_FILE: entry 1 is not named namespace/bot', { canary: { rateLimit: 1 } }],
    ['must be an object', 'canary', '.*'],
    ['has ratelimits, which is not known', { rateLimit: 1, ratelimits: 'canary' }, '.*'],
    ['sets nothing', {}],
    ['keys must not be an empty list', { keys: [] }],
    ['keys must be a list', { keys: 'canary' }],
    ['keys must hold strings', { keys: [1, 2] }],
    [`keys ${HEADER}`, { keys: ['canary key', 'canary\n'] }],
    ['has both keys and keysFile', { keys: ['canary'], keysFile: 'x' }],
    ['keysFile must be a path', { keysFile: '' }],
    ['keysFile names a file that cannot be read \\(ENOENT\\)', { keysFile: 'canary' }],
    [`keysFile ${HEADER}`, { keysFile: 'spaces' }],
    [`rateLimit ${LIMIT}`, { rateLimit: '5' }],
    [`rateLimit ${LIMIT}`, { rateLimit: 0 }],
    [`rateLimit ${LIMIT}`, { rateLimit: 1.5 }],
  ])('has one problem, which shows no value: %s', (problem, content, more = '') => {
    write('spaces', 'canary key\ncanary other');
    const isWhole = problem.startsWith('BOTS_FILE');
    const { problems } = read(isWhole ? content : { 'acme/one': content });
    const expected = `^${isWhole ? '' : 'BOTS_FILE: acme/one '}${problem}${more}$`;
    expect(problems).toEqual([expect.stringMatching(expected)]);
    expect(problems.join()).not.toMatch(/canary/);
  });

  test('names a bot that no bot of the list is, unless it does not look like a name', () => {
    for (const name of ['acmee/helper', 'other/helpers', 'others/*', '*/helpers', 'zoë/bot-1.2_a'])
      expect(read({ [name]: { rateLimit: 1 } }, ['acme/one', 'other/helper'])).toMatchObject({
        problems: [`BOTS_FILE: ${name} is a bot that BOTS does not allow`],
      });
    const bots = { 'acme/one': { rateLimit: 1 }, [`canary/${'k'.repeat(33)}`]: { rateLimit: 1 } };
    expect(read(bots).problems).toEqual(['BOTS_FILE: entry 2 is a bot that BOTS does not allow']);
  });

  test('shows all its problems at once', () => {
    const { problems } = read({ 'acme/one': { keys: [], rateLimit: 0 }, 'acme/two': {}, 'no/bot': {} });
    expect(problems).toHaveLength(5);
  });

  test('is part of the configuration and its problems, and needs a bot service', () => {
    const service = { UPSTREAM_BASE_URL: 'http://localhost:1', UPSTREAM_API_KEYS: 'canary-key' };
    const problemsOf = (variables: Record<string, string>) => {
      try {
        return loadConfig(variables) && [];
      } catch (error) {
        return (error as ConfigError).problems;
      }
    };
    const BOTS_FILE = write('good.json', { 'acme/helper': { keys: ['own'], rateLimit: 2 } });
    const { upstream } = loadConfig({ ...service, BOTS: 'acme/helper', BOTS_FILE });
    expect(upstream.own['acme/helper']).toMatchObject({ rateLimit: 2 });
    expect(Object.isFrozen(upstream.own['acme/helper']?.keys)).toBe(true);
    expect(problemsOf({ ...service, BOTS: 'acme/other', BOTS_FILE, PORT: 'x' })).toEqual([
      'PORT must be a whole number from 0 to 65535',
      'BOTS_FILE: acme/helper is a bot that BOTS does not allow',
    ]);
    expect(problemsOf({ BOTS_FILE: 'missing', BOTS: 'demo/echo' })).toEqual([
      'BOTS_FILE names a file that cannot be read (ENOENT)',
      'UPSTREAM_BASE_URL must be set with BOTS_FILE',
    ]);
  });
});
