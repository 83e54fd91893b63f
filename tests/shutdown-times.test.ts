import { readFileSync } from 'node:fs';
import { expect, test } from '@jest/globals';
import { loadConfig } from '../src/config/config.ts';
import { longestShutdownMs } from './harness/relay/longest-shutdown.ts';
import { CANARY } from './harness/relay/relay.ts';

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
