import { afterEach, expect, test } from '@jest/globals';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

test('a stream is neither compressed nor buffered, whatever the client accepts', async () => {
  pair = await startRelayAndUpstream((socket) => {
    socket.write(wholeStream('data: a\n\n'));
  });
  const response = await pair.relay.send(pair.cookie, { headers: { 'Accept-Encoding': 'gzip, br' } });
  expect(await response.text()).toBe('data: a\n\n');
  expect(pair.upstream.requests[0]?.all('accept-encoding')).toEqual(['identity']);
  expect(response.headers.get('content-encoding')).toBeNull();
  expect(response.headers.get('cache-control')).toBe('no-cache, no-transform');
  expect(response.headers.get('x-accel-buffering')).toBe('no');
});
