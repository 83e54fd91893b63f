import { afterEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { dechunk } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const json = (eventType: string) => `data: ${JSON.stringify({ eventType, requestId: 'r' })}\n\n`;
const RUN = `${json('asgard.run.init')}id: 7\n${json('kept')}${json('asgard.run.done')}`;
const LARGE = `data: ${'x'.repeat(70_000)}`;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

const ENDS: Record<string, () => unknown> = {
  breaks: () => pair.upstream.sockets[0]?.resetAndDestroy(),
  'is ended by a shutdown': () => pair.relay.open.endAll(new Problem('draining', 'Shutting down.')),
  'ends cleanly': () => pair.upstream.sockets[0]?.write(LAST_CHUNK),
};

test.each([
  ['breaks', 'at an event boundary', '', true, 'ok'],
  ['breaks', 'inside an event too large to hold', LARGE, false, 'upstream_stream_broken'],
  ['is ended by a shutdown', 'at an event boundary', '', true, 'ok'],
  ['is ended by a shutdown', 'inside an event too large to hold', LARGE, false, 'answer_lost'],
  ['ends cleanly', 'inside an event too large to hold', LARGE, true, 'ok'],
])('a stream that %s after the end of its run, %s, looks as complete as it is', async (...row) => {
  const [end, , rest, isComplete, outcome] = row;
  pair = await startRelayAndUpstream(
    (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(RUN + rest)])),
  );
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor(rest || RUN);
  ENDS[end]?.();
  await client.closed;
  const { body, complete } = dechunk(client.text());
  expect([body === RUN + rest, complete]).toEqual([true, isComplete]);
  const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
  expect(line.outcome).toBe(outcome);
  expect(pair.upstream.requests).toHaveLength(1);
});
