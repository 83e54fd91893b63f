export default {
  testEnvironment: 'node',
  roots: ['<rootDir>/tests'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '\\.ts$': ['@swc/jest', { jsc: { parser: { syntax: 'typescript' }, target: 'es2024' } }],
  },
  // A guard against hanging, not a limit on speed: some answers take seconds by design, and cores are shared.
  testTimeout: 20_000,
  // Most tests wait for sockets and timers; more workers than cores overlap the waiting.
  maxWorkers: 3,
};
