import { expect } from '@jest/globals';
import { ConfigError, loadConfig } from '../../../src/config/config.ts';
import type { Environment } from '../../../src/config/environment.ts';

export const SECRET_A = 'Canary-0123456789-abcdefghij-ABCDEF';
export const SECRET_B = 'Canary-zyxwvutsrq-9876543210-FEDCBA';

/** The variables required in production. */
export const PRODUCTION = {
  NODE_ENV: 'production',
  PUBLIC_URL: 'https://chat.example.com',
  UPSTREAM_BASE_URL: 'https://bots.example.com/v1',
  UPSTREAM_API_KEYS: 'canary-key-1',
  BOTS: 'acme/helper',
  SESSION_SECRETS: SECRET_A,
  CHANNEL_SECRET: SECRET_B,
} as const;

/** The problems of an environment, in which `inFile` are those of `.env`; none if it is valid. */
export function problemsOf(environment: Environment, inFile: readonly string[] = []): readonly string[] {
  try {
    loadConfig(environment, inFile);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    for (const problem of error.problems) expect(error.message).toContain(`  - ${problem}`);
    expect(error.message).toContain(` ${error.problems.length} problem`);
    return error.problems;
  }
}
