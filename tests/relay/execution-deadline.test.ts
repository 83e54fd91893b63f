import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const DEADLINE_MS = 1200;

const pairs: RelayAndUpstream[] = [];
beforeEach(stopClock);
afterEach(async () => {
  for (const pair of pairs.splice(0)) await pair.close();
});

/** Sends a message whose answer is `early` at once and `late` right before the deadline, and does not end. */
async function streamPastDeadline(early: string, late: string) {
  let upstreamClosed = Promise.resolve();
  const pair = await startRelayAndUpstream(
    (socket) => {
      socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(early)]));
      upstreamClosed = new Promise((resolve) => socket.on('close', () => resolve()));
    },
    { MAX_EXECUTION_MS: String(DEADLINE_MS) },
  );
  pairs.push(pair);
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor('data: a');
  pass(DEADLINE_MS - 1);
  pair.upstream.sockets[0]?.write(chunk(late));
  await client.waitFor('data: b');
  pass(1);
  await Promise.all([client.closed, upstreamClosed]);
  const { outcome } = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
  return { ...dechunk(client.text()), outcome };
}

describe('a stream that does not end', () => {
  test('ends with deadline_exceeded, and the upstream is aborted', async () => {
    const { body, complete, outcome } = await streamPastDeadline('data: a\n\n', 'data: b\n\n');
    const [events, ending = ''] = body.split('event: error\n');
    expect(events).toBe('data: a\n\ndata: b\n\n');
    expect(JSON.parse(ending.replace(/^data: /, ''))).toMatchObject({
      status: 504,
      code: 'deadline_exceeded',
      eventType: 'asgard.run.error',
      fact: { runError: { error: { code: 'deadline_exceeded' } } },
    });
    expect(complete).toBe(true);
    expect(outcome).toBe('deadline_exceeded');
  });

  test('ends in the same way if the deadline is in the middle of an event', async () => {
    const { body, complete } = await streamPastDeadline('data: a\n\n', 'data: b\n\ndata: c\n');
    expect(body).toMatch(
      /^data: a\n\ndata: b\n\nevent: error\ndata: \{[^\n]*"deadline_exceeded"[^\n]*\}\n\n$/,
    );
    expect(complete).toBe(true);
  });

  test('is cut if the deadline is inside an event that is too large to hold', async () => {
    const [early, late] = ['a', 'b'].map((letter) => `data: ${letter.repeat(70_000)}\n`) as [string, string];
    const { body, complete, outcome } = await streamPastDeadline(early, late);
    expect(body).toBe(early + late);
    expect(complete).toBe(false);
    expect(outcome).toBe('deadline_exceeded');
  });
});
