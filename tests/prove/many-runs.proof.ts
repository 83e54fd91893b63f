import { test } from '@jest/globals';
import { expectNothingLeft } from '../harness/relay/many-runs.ts';

/** `RUNS` sets another number. */
const RUNS = Number(process.env.RUNS ?? 1_000);

test(
  `${RUNS} runs, ended in every way, leave no run, no timer and no gauge behind`,
  () => expectNothingLeft(RUNS),
  300_000,
);
