import { expect, test } from '@jest/globals';
import type { Run } from '../../src/join/run.ts';
import type { EarlySlot } from '../../src/pace/early-slots.ts';
import { type MessageClient, runTask } from '../../src/routes/message-steps.ts';

test('a run that fails before its message waits for its slot gives that back with its place', () => {
  const released: string[] = [];
  const note = (what: string) => () => void released.push(what);
  const client = {
    req: { url: '/', headers: {} },
    res: { locals: {} },
    place: { release: note('place') },
  } as unknown as MessageClient;
  const run = { stop: new AbortController(), headers: new Map() } as unknown as Run;
  const early: EarlySlot = { take: () => Promise.reject(new Error('not asked')), drop: note('slot') };
  for (const release of runTask(client, run, early).releases) release();
  expect(released.sort()).toEqual(['place', 'slot']);
});
