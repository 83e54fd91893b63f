import { afterEach, describe, expect, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { dechunk } from '../support/raw-client.ts';
import { chunk, STREAM_HEAD } from '../support/raw-upstream.ts';

const DEADLINE_MS = 1200;

let pair: Pair;
afterEach(() => pair.close());

/** Lets the upstream send `piece` again and again without an end, until it sees its connection close. */
async function drip(piece: string) {
  let onClosed = () => {};
  const upstreamClosed = new Promise<void>((resolve) => {
    onClosed = resolve;
  });
  pair = await startPair(
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
  const startedAt = performance.now();
  const client = pair.ask({ headers: ['Connection: close'] });
  await Promise.all([client.closed, upstreamClosed]);
  const took = performance.now() - startedAt;
  const { outcome } = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
  return { ...dechunk(client.text()), took, outcome };
}

describe('a stream that drips without an end', () => {
  test('ends with deadline_exceeded, and the upstream is aborted (S12)', async () => {
    const { body, complete, took, outcome } = await drip('data: a\n\n');
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
  });

  test('is cut if that is in the middle of an event (S12)', async () => {
    const { body, complete, outcome } = await drip('data: a\n');
    expect(body).toMatch(/^(data: a\n){3,8}$/);
    expect(complete).toBe(false);
    expect(outcome).toBe('deadline_exceeded');
  });
});
