import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { signInAt } from '../support/process.ts';
import { USER } from '../support/relay.ts';
import {
  lateness,
  openTickingStreams,
  startTickingRelay,
  stopTickingRelay,
} from '../support/sign-in-streams.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const STREAMS = 5;

let port: number;
beforeAll(async () => {
  port = await startTickingRelay();
});
afterAll(stopTickingRelay);

async function startAgain() {
  await stopTickingRelay();
  port = await startTickingRelay();
}

async function signInSixAtOnce() {
  const streams = await openTickingStreams(port, STREAMS);
  const calmFrom = performance.now();
  await sleep(1000);
  const usual = lateness(streams, calmFrom);
  const from = performance.now();
  const all = Array.from({ length: 6 }, () => signInAt(port, USER.name, USER.password));
  expect(new Set(await Promise.all(all)).size).toBe(6);
  const late = lateness(streams, from);
  // On an idle machine, `usual` is a few ms. On a busy one all takes longer, but nothing waits for all sign-ins.
  expect(late).toBeLessThan(Math.max(50 + 4 * usual, (performance.now() - from) / 3));
}

// `npm run prove` does the same with far more sign-ins than can be checked.
test(
  'six users who sign in at the same moment are all signed in, and streams stay smooth meanwhile',
  whileAwake(signInSixAtOnce, startAgain),
  90_000,
);
