import { expect, jest, test } from '@jest/globals';
import { type RequestLocals, waitedMs } from '../../src/http/locals.ts';
import { pacing } from '../../src/pace/pacing.ts';
import type { SlotWaits } from '../../src/pace/slot-waits.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';

test('the wait of a message is known already at the moment when its client leaves', async () => {
  const slots = {
    take: (_request, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  } as Pick<SlotWaits, 'take'> as SlotWaits;
  const stop = new AbortController();
  const log: Pick<RequestLocals, 'slotWait'> = {};
  const paceMessage = pacing(slots, { limit: 1, windowMs: 1_000, maxWaitMs: 1_000 });
  const started = paceMessage({ endpoint: 'ns/bot', holders: { user: 'ada' }, signal: stop.signal, log });
  const slot = started.start();
  const waited = () => (log.slotWait ? waitedMs(log.slotWait) : 0);
  advanceClocks({ monotonic: 60_000 });
  stop.abort('left');
  // The log line is written when the client's connection closes, before the wait rejects.
  expect(log.slotWait?.outcome).toBe('given_up');
  expect(Math.floor(waited() / 60_000)).toBe(1);
  await expect(slot).rejects.toBe('left');
  const ms = waited();
  advanceClocks({ monotonic: 600_000 });
  expect(waited()).toBe(ms);
  jest.restoreAllMocks();
});
