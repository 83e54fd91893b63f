import { afterEach, expect, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { wholeStream } from '../support/raw-upstream.ts';

let pair: Pair;
afterEach(() => pair.close());

test('the stream is neither compressed nor held, whatever the client accepts (S3)', async () => {
  pair = await startPair((socket) => {
    socket.write(wholeStream('data: a\n\n'));
  });
  const response = await pair.relay.send(pair.cookie, { headers: { 'Accept-Encoding': 'gzip, br' } });
  expect(await response.text()).toBe('data: a\n\n');
  expect(pair.upstream.requests[0]?.all('accept-encoding')).toEqual(['identity']);
  expect(response.headers.get('content-encoding')).toBeNull();
  expect(response.headers.get('cache-control')).toBe('no-cache, no-transform');
  expect(response.headers.get('x-accel-buffering')).toBe('no');
});
