import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { settingsFrom } from '../../bench/support/settings.ts';

afterEach(() => {
  jest.restoreAllMocks();
});

describe('the settings of the comparison', () => {
  test('are five whole rounds of all peers, whose results go into a folder of their own', () => {
    expect(settingsFrom([], ['nginx'])).toEqual({
      ...{ rounds: 5, scale: 1, only: undefined, out: 'bench-results', profile: false },
    });
  });

  test('can be smaller, of some peers, and kept in the project', () => {
    const args = ['--rounds', '1', '--scale', '0.5', '--only', 'nginx, fastify', '--record'];
    expect(settingsFrom(args, ['nginx', 'fastify', 'hono'])).toEqual({
      ...{ rounds: 1, scale: 0.5, only: ['nginx', 'fastify'], out: undefined, profile: false },
    });
  });

  test.each([
    [['--only', 'nginx,another'], 'another'],
    [['--rounds', '0'], '--rounds'],
    [['--scale', 'much'], '--scale'],
    [['--fast'], '--fast'],
  ])('%j is refused with a message that names the error', (args, named) => {
    jest.spyOn(process, 'exit').mockImplementation((code) => {
      throw new Error(`exit ${code}`);
    });
    let printed = '';
    jest.spyOn(process.stderr, 'write').mockImplementation((text) => {
      printed += text;
      return true;
    });
    expect(() => settingsFrom(args, ['nginx'])).toThrow('exit 64');
    expect(printed).toContain(named);
    expect(printed).toContain('Usage: npm run bench');
  });
});
