import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

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
  pair.upstream.sockets[0]?.write(END);
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: 'data: a\n\ndata: b\n\n', complete: true });
  for (const operation of stalled) expect(operation).not.toHaveBeenCalled();
});
