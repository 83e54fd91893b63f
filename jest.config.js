// Node.js loads these libraries by their first file, once for each worker: half of what a test file took was Jest's own
// loading of their files. They keep no state, and they read no clock that a test moves.
const LIBRARIES =
  '(@redis/client/dist|express|http-proxy-middleware/dist|playwright-core|undici|zod)/index\\.js$';

export default {
  testEnvironment: '<rootDir>/tests/support/test-environment.js',
  testSequencer: '<rootDir>/tests/support/slow-early.js',
  roots: ['<rootDir>/tests'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '\\.ts$': ['@swc/jest', { jsc: { parser: { syntax: 'typescript' }, target: 'es2024' } }],
    [`/node_modules/${LIBRARIES}`]: '<rootDir>/tests/support/library-of-node.js',
  },
  transformIgnorePatterns: [`/node_modules/(?!${LIBRARIES})`],
  // A guard against hanging, not a limit on speed: some answers take seconds by design, and cores are shared.
  testTimeout: 20_000,
  // Most tests wait for sockets and timers; more workers than cores overlap the waiting.
  maxWorkers: 3,
  // What was loaded for a test file is never freed. In a large heap, each full collection takes a second of CPU time: a
  // new worker is cheaper.
  workerIdleMemoryLimit: '600MB',
  // Of tests that run beside each other in one file: with more, Redis cannot answer in the half second that it has.
  maxConcurrency: 3,
};
