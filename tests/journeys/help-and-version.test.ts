import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from '@jest/globals';
import { startProcess, stopProcesses } from '../support/process.ts';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
/** With this, nothing starts. */
const WRONG = { PORT: 'none', UPSTREAM_BASE_URL: 'none' };

const COMMANDS: [string[], RegExp][] = [
  [[], /^Usage: node dist\/main\.js +run the relay\n[\s\S]*--help[\s\S]*--version/],
  [['--check-config'], /^Usage: node dist\/main\.js +run the relay\n/],
  [['user'], /^Usage: npm run user -- add NAME/],
  [['user', 'add'], /^Usage: npm run user -- add NAME/],
  [['keys'], /^Usage: npm run keys/],
  [['keys', '--json'], /^Usage: npm run keys/],
  [['check'], /^Usage: npm run check -- \[options\]/],
  [['check', '--no-messages'], /^Usage: npm run check -- \[options\]/],
  [['demo-bot'], /^Usage: node dist\/main\.js demo-bot/],
  [['demo-bot', '--port', '0'], /^Usage: node dist\/main\.js demo-bot/],
];

afterEach(() => stopProcesses());

/** What a process says that should end by itself with 0, whatever its configuration. */
async function printed(args: string[]): Promise<string> {
  const relay = startProcess({ args, environment: WRONG });
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  expect(relay.stderr()).toBe('');
  return relay.stdout();
}

describe.each(COMMANDS)('%j', (command, usage) => {
  test.each(['--help', '-h'])('says with %s how to use it, on standard output', async (flag) => {
    expect(await printed([...command, flag])).toMatch(usage);
  });

  test.each(['--version', '-v'])('says with %s which version it is, on standard output', async (flag) => {
    expect(await printed([...command, flag])).toBe(`${version}\n`);
  });
});
