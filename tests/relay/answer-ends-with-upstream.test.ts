import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import { dechunk } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';

const END = Buffer.concat([chunk('data: b\n\n'), Buffer.from(LAST_CHUNK)]);

let pair: RelayAndUpstream;
beforeEach(async () => {
  pair = await startRelayAndUpstream((socket) => {
    socket.write(STREAM_HEAD);
    socket.write(chunk('data: a\n\n'));
  });
});
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

test('a stream ends when its upstream ends, without a call of the session store', async () => {
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor('data: a\n\n');
  const { sessions } = pair.relay;
  const stalled = (['get', 'set', 'extend', 'state', 'remove'] as const).map((name) =>
    jest.spyOn(sessions, name).mockReturnValue(new Promise<never>(() => {})),
  );
  const awakeMs = countAwakeMs();
  pair.upstream.sockets[0]?.write(END);
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: 'data: a\n\ndata: b\n\n', complete: true });
  expect(awakeMs()).toBeLessThan(5_000);
  for (const operation of stalled) expect(operation).not.toHaveBeenCalled();
});
