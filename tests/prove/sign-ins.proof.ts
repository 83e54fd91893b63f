import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from '@jest/globals';
import { sleep } from '../harness/clock/sleep.ts';
import {
  lateness,
  openTickingStreams,
  startTickingRelay,
  stopTickingRelay,
} from '../harness/relay/sign-in-streams.ts';

const FLOOD = fileURLToPath(new URL('../harness/relay/sign-in-flood.ts', import.meta.url));
/** SIGN_INS=10000 measures what the documents say. */
const SIGN_INS = Number(process.env.SIGN_INS ?? 1000);
const STREAMS = 5;

afterEach(stopTickingRelay);

async function flood(port: number): Promise<Record<string, number>> {
  const child = spawn(process.execPath, [FLOOD, String(port), String(SIGN_INS)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  await once(child, 'close');
  return JSON.parse(printed);
}

test('streams stay smooth while more sign-ins come at once than can be checked', async () => {
  const port = await startTickingRelay();
  const streams = await openTickingStreams(port, STREAMS);
  const calmFrom = performance.now();
  await sleep(1000);
  const usual = lateness(streams, calmFrom);
  const from = performance.now();
  const statuses = await flood(port);
  const late = lateness(streams, from);
  process.stderr.write(`events are late by ${late.toFixed(1)} ms, and usually by ${usual.toFixed(1)} ms\n`);
  expect((statuses[401] ?? 0) + (statuses[503] ?? 0)).toBe(SIGN_INS);
  expect(statuses[503] ?? 0).toBeGreaterThan(SIGN_INS / 2);
  // On an idle machine, `usual` is a few ms.
  expect(late).toBeLessThan(50 + 4 * usual);
}, 90_000);
