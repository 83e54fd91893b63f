import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { dechunk } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';

const END = Buffer.concat([chunk('data: b\n\n'), Buffer.from(LAST_CHUNK)]);

let pair: Pair;
beforeEach(async () => {
  pair = await startPair((socket) => {
    socket.write(STREAM_HEAD);
    socket.write(chunk('data: a\n\n'));
  });
});
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

test('a stream ends when the upstream ends, and asks nothing of a session store that stalls', async () => {
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor('data: a\n\n');
  const { sessions } = pair.relay;
  const stalled = (['get', 'set', 'extend', 'state', 'remove'] as const).map((name) =>
    jest.spyOn(sessions, name).mockReturnValue(new Promise<never>(() => {})),
  );
  const writtenAt = performance.now();
  pair.upstream.sockets[0]?.write(END);
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: 'data: a\n\ndata: b\n\n', complete: true });
  expect(performance.now() - writtenAt).toBeLessThan(500);
  for (const operation of stalled) expect(operation).not.toHaveBeenCalled();
});
