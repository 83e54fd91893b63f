import { test } from '@jest/globals';
import { expectNothingLeft } from '../harness/relay/many-runs.ts';

/** `npm run prove` has 1,000. */
const RUNS = 300;

test(
  `${RUNS} runs, ended in every way, leave no run, no timer and no gauge behind`,
  () => expectNothingLeft(RUNS),
  120_000,
);
