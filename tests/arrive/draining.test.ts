import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { call, expectNobody, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';

let pair: RelayAndUpstream;
beforeEach(async () => {
  pair = await startRelayAndUpstream(() => {});
});
afterEach(() => pair.close());

// What each route answers then is in `tests/guard/refusals.test.ts`.
test('while the relay drains, a message on an open connection is answered with 503, and the connection is closed', async () => {
  const client = rawClient(pair.relay.port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
  await client.waitFor('{"status":"ok"}');
  const before = client.text().length;
  pair.relay.lifecycle.enter('draining');
  client.socket.write(rawMessage({ cookie: pair.cookie }));
  expect((await client.closed).error).toBeUndefined();
  const answer = parseAnswer(client.text().slice(before));
  expectProblem(answer, 503, 'draining', { retryable: 'new message' });
  expect(answer.headers).toMatchObject({ connection: 'close', 'retry-after': '1' });
  expect(pair.upstream.sockets).toHaveLength(0);
});

test('the process counts as ready until it leaves, serves until it drains, and is alive until its end', async () => {
  const probe = async (path: string) => {
    const { status, body } = await call(pair.relay.port, path);
    return [status, JSON.parse(body)];
  };
  const notReady = [503, { status: 'not ready', checks: { accepting: 'failed' } }];
  expect(await probe('/readyz')).toEqual([200, { status: 'ready', checks: { accepting: 'ok' } }]);
  pair.relay.lifecycle.enter('leaving');
  expect(await probe('/readyz')).toEqual(notReady);
  expectNobody(await call(pair.relay.port, '/auth/session'));
  pair.relay.lifecycle.enter('draining');
  expect(await probe('/readyz')).toEqual(notReady);
  expect(await probe('/healthz')).toEqual([200, { status: 'ok' }]);
});
