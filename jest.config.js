/** What the three lanes have in common. */
export const shared = {
  roots: ['<rootDir>/tests'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: { '\\.ts$': ['@swc/jest', { jsc: { parser: { syntax: 'typescript' }, target: 'es2024' } }] },
  // A guard against hanging, not a limit on speed.
  testTimeout: 60_000,
};

/** The gate: deterministic tests. Most of them wait for sockets, so there are more workers than cores. */
export default {
  ...shared,
  testMatch: ['**/*.test.ts'],
  maxWorkers: 4,
  // Modules of a finished test file are not freed.
  workerIdleMemoryLimit: '1GB',
};
