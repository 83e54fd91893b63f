import { shared } from '../jest.config.js';

/** Tests that measure. Each has a second try, and the failure of the first one is printed. */
export default {
  ...shared,
  rootDir: '..',
  testMatch: ['**/*.timing.ts'],
  setupFilesAfterEnv: ['<rootDir>/tests/retry-once.js'],
};
