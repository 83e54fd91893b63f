import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const TESTS = join(import.meta.dirname, 'tests');

// Node.js loads these libraries by their first file, once for each worker: half of what a test file took was Jest's own
// loading of their files. They keep no state, and they read no clock that a test moves.
const LIBRARIES =
  '(@redis/client/dist|express|http-proxy-middleware/dist|playwright-core|undici|zod)/index\\.js$';

/** A test that replaces what belongs to its own context: a clock, a method of a global object, or a module. */
const REPLACES =
  /useFakeTimers|advanceClocks|mockModule|spyOn\((process|Date|performance|Buffer|globalThis)\b/;
/** Such a test, too, unless the page in its browser is meant. */
const NAMES_GLOBALS = /^(?!.*oneChromium).*globalThis/s;
const replacing = readdirSync(TESTS, { recursive: true })
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => join(TESTS, name))
  .filter((path) => {
    const source = readFileSync(path, 'utf8');
    return REPLACES.test(source) || NAMES_GLOBALS.test(source);
  });

const byNode = '<rootDir>/tests/support/loaded-by-node.js';
const shared = {
  testEnvironment: '<rootDir>/tests/support/test-environment.js',
  roots: ['<rootDir>/tests'],
  extensionsToTreatAsEsm: ['.ts'],
  transformIgnorePatterns: [`/node_modules/(?!${LIBRARIES})`],
};
const transform = {
  '\\.ts$': ['@swc/jest', { jsc: { parser: { syntax: 'typescript' }, target: 'es2024' } }],
  [`/node_modules/${LIBRARIES}`]: byNode,
};

/** For tests whose source Jest loads, anew for each test file. */
export const loadedByJest = { ...shared, transform };

export default {
  projects: [
    { ...loadedByJest, testMatch: replacing },
    // Node.js loads the source once for each worker, which saves a fifth of the CPU time of a test file.
    {
      ...shared,
      // A test and its source compare errors by their classes.
      testEnvironmentOptions: { sharesErrors: true },
      transform: { '/src/.*\\.ts$': byNode, ...transform },
      testMatch: ['**/*.test.ts'],
      testPathIgnorePatterns: replacing,
    },
  ],
  testSequencer: '<rootDir>/tests/support/slow-early.js',
  // A guard against hanging, not a limit on speed: some answers take seconds by design, and cores are shared.
  testTimeout: 20_000,
  // Most tests wait for sockets and timers; more workers than cores overlap the waiting. With many more, what has a time
  // limit can come too late.
  maxWorkers: 6,
  // What was loaded for a test file is never freed. In a large heap, each full collection takes a second of CPU time: a
  // new worker is cheaper. `npm test` collects on one thread, since the others only take the cores from other workers.
  workerIdleMemoryLimit: '600MB',
  // Of tests that run beside each other in one file: with more, Redis cannot answer in the half second that it has.
  maxConcurrency: 3,
};
