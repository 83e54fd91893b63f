import { afterEach, describe, expect, test } from '@jest/globals';
import { dechunk } from '../support/raw-client.ts';
import { chunk, STREAM_HEAD } from '../support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';
import { whileAwake } from '../support/while-awake.ts';

const DEADLINE_MS = 1200;

const pairs: RelayAndUpstream[] = [];
afterEach(async () => {
  for (const pair of pairs.splice(0)) await pair.close();
});

/** Starts an upstream that sends `piece` repeatedly until its connection closes, and sends a message. */
async function streamEndlessly(piece: string) {
  let onClosed = () => {};
  const upstreamClosed = new Promise<void>((resolve) => {
    onClosed = resolve;
  });
  const pair = await startRelayAndUpstream(
    (socket) => {
      socket.write(STREAM_HEAD);
      const timer = setInterval(() => socket.write(chunk(piece)), DEADLINE_MS / 8);
      socket.on('close', () => {
        clearInterval(timer);
        onClosed();
      });
    },
    { MAX_EXECUTION_MS: String(DEADLINE_MS) },
  );
  pairs.push(pair);
  const startedAt = performance.now();
  const client = pair.ask({ headers: ['Connection: close'] });
  await Promise.all([client.closed, upstreamClosed]);
  const took = performance.now() - startedAt;
  const { outcome } = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
  return { ...dechunk(client.text()), took, outcome };
}

describe('a stream that does not end', () => {
  test(
    'ends with deadline_exceeded, and the upstream is aborted',
    whileAwake(async () => {
      const { body, complete, took, outcome } = await streamEndlessly('data: a\n\n');
      const [drops = '', ending = ''] = body.split('event: error\n');
      expect(drops).toMatch(/^(data: a\n\n){3,8}$/);
      expect(JSON.parse(ending.replace(/^data: /, ''))).toMatchObject({
        status: 504,
        code: 'deadline_exceeded',
        eventType: 'asgard.run.error',
        fact: { runError: { error: { code: 'deadline_exceeded' } } },
      });
      expect(complete).toBe(true);
      expect(took).toBeGreaterThan(DEADLINE_MS * 0.9);
      expect(took).toBeLessThan(DEADLINE_MS * 3);
      expect(outcome).toBe('deadline_exceeded');
    }),
  );

  test('ends in the same way if the deadline is in the middle of an event', async () => {
    const { body, complete } = await streamEndlessly('data: a\n');
    expect(body).toMatch(/^event: error\ndata: \{[^\n]*"deadline_exceeded"[^\n]*\}\n\n$/);
    expect(complete).toBe(true);
  });

  test(
    'is cut if the deadline is inside an event that is too large to hold',
    whileAwake(async () => {
      const { body, complete, outcome } = await streamEndlessly(`data: ${'a'.repeat(70_000)}\n`);
      expect(body).toMatch(/^(data: a+\n){2,8}$/);
      expect(complete).toBe(false);
      expect(outcome).toBe('deadline_exceeded');
    }),
  );
});
