import { readFileSync } from 'node:fs';
import { expect, test } from '@jest/globals';
import { loadConfig } from '../src/config/config.ts';
import { longestShutdownMs } from '../src/process/shutdown-times.ts';
import { CANARY } from './support/relay.ts';

test('the longest shutdown is the delay, the grace, the time for final events and a margin', () => {
  expect(longestShutdownMs({ delayMs: 5_000, graceMs: 185_000 })).toBe(199_000);
});

test('the longest shutdown fits into a timer, whatever is set', () => {
  const longest = 2 ** 31 - 1;
  expect(longestShutdownMs({ delayMs: longest, graceMs: longest })).toBe(longest);
});

test.each(['terminationGracePeriodSeconds: ', 'TimeoutStopSec=', 'stop_grace_period: '])(
  'docs/deploy.md leaves a relay in production its longest shutdown with %s',
  (name) => {
    const text = readFileSync(new URL('../docs/deploy.md', import.meta.url), 'utf8');
    const { shutdown } = loadConfig({
      NODE_ENV: 'production',
      PUBLIC_URL: 'https://chat.example.com',
      UPSTREAM_BASE_URL: 'https://bots.example.net',
      UPSTREAM_API_KEYS: CANARY.key,
      BOTS: 'acme/helper',
      SESSION_SECRETS: CANARY.sessionSecret,
      CHANNEL_SECRET: CANARY.channelSecret,
    });
    const [, seconds] = new RegExp(`\`${name}(\\d+)`).exec(text) ?? [];
    expect(Number(seconds) * 1000).toBeGreaterThan(longestShutdownMs(shutdown));
  },
);
