import tests, { loadedByJest } from '../../jest.config.js';

const { projects: _, ...settings } = tests;

/** The proofs that take minutes. */
export default {
  ...settings,
  ...loadedByJest,
  rootDir: '../..',
  testMatch: ['<rootDir>/tests/prove/*.proof.ts'],
};
