import { expect, test } from '@jest/globals';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { RunLog } from '../../src/runs/run-log.ts';

/** As large as the largest page. */
const PAGE_BYTES = 32_768;
const pageOf = (letter: string) => Buffer.alloc(PAGE_BYTES, letter);

test('a part of the log that was lent stays as it was, however much comes after it', () => {
  const log = new RunLog(heldBytes(1 << 20));
  log.push(pageOf('a'), false);
  const lent = log.lend(0)?.bytes;
  for (const letter of 'bcdef') {
    log.push(pageOf(letter), false);
    log.trim(1.5 * PAGE_BYTES, log.end);
  }
  expect(lent).toEqual(pageOf('a'));
  expect(log.read(log.start)?.bytes).toEqual(pageOf('f'));
});

test('a page that nobody has a part of is used again', () => {
  const log = new RunLog(heldBytes(1 << 20));
  log.push(pageOf('a'), false);
  const first = log.read(0)?.bytes.buffer;
  log.push(pageOf('b'), false);
  log.trim(1.5 * PAGE_BYTES, log.end);
  log.push(pageOf('c'), false);
  expect(log.read(2 * PAGE_BYTES)?.bytes.buffer).toBe(first);
});
