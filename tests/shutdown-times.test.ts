import { readFileSync } from 'node:fs';
import { expect, test } from '@jest/globals';
import { loadConfig } from '../src/config/config.ts';
import { longestShutdownMs } from '../src/process/shutdown-times.ts';
import { CANARY } from './support/relay.ts';

test('the longest shutdown has the delay, the grace, the last words and something more', () => {
  expect(longestShutdownMs({ delayMs: 5_000, graceMs: 185_000 })).toBe(199_000);
});

test('with the longest times that can be set, it is still a time that a timer can wait for', () => {
  const longest = 2 ** 31 - 1;
  expect(longestShutdownMs({ delayMs: longest, graceMs: longest })).toBe(longest);
});

test.each(['terminationGracePeriodSeconds: ', 'TimeoutStopSec=', 'stop_grace_period: '])(
  'the README leaves a relay in production its longest shutdown with %s',
  (name) => {
    const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
    const { shutdown } = loadConfig({
      NODE_ENV: 'production',
      PUBLIC_URL: 'https://chat.example.com',
      UPSTREAM_BASE_URL: 'https://bots.example.net',
      UPSTREAM_API_KEYS: CANARY.key,
      BOTS: 'acme/helper',
      SESSION_SECRETS: CANARY.sessionSecret,
    });
    const [, seconds] = new RegExp(`\`${name}(\\d+)`).exec(readme) ?? [];
    expect(Number(seconds) * 1000).toBeGreaterThan(longestShutdownMs(shutdown));
  },
);
