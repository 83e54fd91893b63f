import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from '@jest/globals';
import { dropLog, pushToLog, type RunLog, readLog, runLog } from '../../src/join/run-log.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { sleep } from '../support/sleep.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const budget = heldBytes(1 << 24);
const logs = (count: number) => Array.from({ length: count }, () => runLog(budget));

function textOf(log: RunLog): string {
  let text = '';
  for (let part = readLog(log, 0); part; part = readLog(log, text.length)) text += part.bytes.toString();
  return text;
}

test('logs that are written in turns have their own bytes, in one page and in several', () => {
  const all = logs(20);
  const expected = all.map(() => '');
  const writeAll = (times: number) => {
    for (let n = 0; n < times; n++) {
      for (const [at, log] of all.entries()) {
        // Not all fill their pages at the same time.
        const text = `${at}:${n} `.repeat(1 + (at % 7));
        expect(pushToLog(log, Buffer.from(text), false)).toBe(true);
        expected[at] += text;
      }
    }
    expect(all.map(textOf)).toEqual(expected);
  };
  writeAll(20);
  writeAll(200);
  // What is dropped changes no other one, and what comes after that neither.
  for (const log of all.slice(0, 10)) dropLog(log);
  for (const log of logs(20)) pushToLog(log, Buffer.alloc(1_024, 'x'), false);
  expect(all.map(textOf)).toEqual(expected.map((text, at) => (at < 10 ? '' : text)));
  for (const log of all) dropLog(log);
});

test('a page that is read from its middle, or to its end, shows nothing of the pages beside it', () => {
  const [before, log, after] = logs(3) as [RunLog, RunLog, RunLog];
  for (const one of [before, log, after]) pushToLog(one, Buffer.alloc(1_024, one === log ? 'b' : 'x'), false);
  expect(readLog(log, 1_000)?.bytes.toString()).toBe('b'.repeat(24));
  expect(readLog(log, 0)?.bytes.toString()).toBe('b'.repeat(1_024));
  expect(readLog(log, 1_024)).toBeUndefined();
  for (const one of [before, log, after]) dropLog(one);
});

test('small logs are together in few buffers, each of which is freed with the last of its logs', async () => {
  const all = logs(40);
  for (const log of all) pushToLog(log, Buffer.from('data: 1\n\n'), false);
  const buffers = [...new Set(all.map(({ buffer }) => buffer as Buffer))].map(
    (buffer) => new WeakRef(buffer),
  );
  expect(buffers.length).toBeLessThanOrEqual(6);
  const kept = all[20];
  for (const log of all) if (log !== kept) dropLog(log);
  await sleep(0);
  collectGarbage();
  // That of the log which is kept, and that of the newest logs.
  expect(buffers.filter((one) => one.deref()).length).toBeLessThanOrEqual(2);
  expect(kept && textOf(kept)).toBe('data: 1\n\n');
  if (kept) dropLog(kept);
});
