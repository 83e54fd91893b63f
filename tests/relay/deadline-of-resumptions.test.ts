import { afterAll, expect } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import { chunk, STREAM_HEAD } from '../support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../support/relay-and-upstream.ts';
import { testSideBySide } from '../support/side-by-side.ts';

const EXECUTION_MS = 2_500;

const opened: RelayAndUpstream[] = [];
afterAll(() => Promise.all(opened.map((pair) => pair.close())));

async function start(): Promise<RelayAndUpstream> {
  const pair = await startRelayAndUpstream(
    (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('id: 1\n\n')])),
    { MAX_EXECUTION_MS: String(EXECUTION_MS), UPSTREAM_RESPONSE_TIMEOUT_MS: String(EXECUTION_MS) },
  );
  opened.push(pair);
  return pair;
}

/**
 * Sends a message and leaves after its id; then resumes it after `ms`. Returns how long after the first message the
 * second stream ended, and how long it lasted.
 */
async function resumedAfter(ms: number, { body = '{"n":1}', id = '1' } = {}) {
  const pair = await start();
  const from = performance.now();
  const first = pair.ask({ body: '{"n":1}' });
  await first.waitFor('id: 1');
  first.socket.destroy();
  await new Promise((resolve) => setTimeout(resolve, ms));
  const at = performance.now();
  const awakeMs = countAwakeMs();
  const again = pair.ask({ body, headers: [`Last-Event-ID: ${id}`, 'Connection: close'] });
  await again.closed;
  return {
    pair,
    lasted: performance.now() - at,
    awake: awakeMs(),
    sinceFirst: performance.now() - from,
    text: again.text(),
  };
}

async function expectWholeDeadline(message: { body?: string; id?: string }): Promise<void> {
  const { lasted, text } = await resumedAfter(EXECUTION_MS / 2, message);
  expect(text).toContain('"code":"deadline_exceeded"');
  expect(lasted).toBeGreaterThan(0.9 * EXECUTION_MS);
}

testSideBySide([
  [
    'a client that resumes its message gets what is left of the deadline',
    async () => {
      const { awake, sinceFirst, text } = await resumedAfter(0.8 * EXECUTION_MS);
      expect(text).toContain('"code":"deadline_exceeded"');
      expect(sinceFirst).toBeGreaterThan(0.9 * EXECUTION_MS);
      expect(awake).toBeLessThan(0.9 * EXECUTION_MS);
    },
  ],
  ['another message gets a whole deadline', () => expectWholeDeadline({ body: '{"n":2}' })],
  ['the same message without an id gets a whole deadline', () => expectWholeDeadline({ id: '' })],
  [
    'a client that resumes its message after the deadline is refused before it gets a slot',
    async () => {
      const { pair, text } = await resumedAfter(EXECUTION_MS);
      expect(text).toMatch(/^HTTP\/1\.1 504 /);
      expect(text).toMatch(/"code":"deadline_exceeded".*"retryable":false,"maybeStarted":true/);
      expect(pair.upstream.requests).toHaveLength(1);
      await until(() => pair.relay.open.count() === 0);
    },
  ],
]);
