import { afterEach, expect, test } from '@jest/globals';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

const LIMIT_MS = 2_000;
/** How long a stream may stay open after the end of its session, in ms. */
const SOON_MS = 5_000;

let all: Instances;
afterEach(() => all.close());

test('a silent stream ends soon after the idle limit of its session, and not before', async () => {
  all = await startInstances({ count: 1, shared: false, limits: { idleMs: LIMIT_MS } });
  const cookie = await (all.relays[0] as TestRelay).signIn();
  const from = performance.now();
  const stream = await all.stream(0, cookie);
  expect(await stream.over()).toEqual({ code: 'session_ended', complete: true });
  const tookMs = performance.now() - from;
  expect(tookMs).toBeGreaterThan(LIMIT_MS - 10);
  expect(tookMs).toBeLessThan(LIMIT_MS + SOON_MS);
});
