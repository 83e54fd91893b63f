import { afterEach, expect, test } from '@jest/globals';
import { expectProblem } from '../../harness/clients/call.ts';
import { ask, operationAt } from '../../harness/clients/operation-requests.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { OTHER_USER } from '../../harness/relay/relay.ts';
import {
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../../harness/relay/relay-and-upstream.ts';

const METADATA = operationAt('GET channel/metadata');
const SUSPEND = operationAt('POST message/suspend');

let pair: RelayAndUpstream;
afterEach(() => pair.close());

test('a user has at most 32 operations under way; suspends and other users are not held up', async () => {
  pair = await startRelayAndUpstream(() => {});
  const { requests, sockets } = pair.upstream;
  const hanging = Array.from({ length: 32 }, () => ask(pair, METADATA));
  await until(() => requests.length === 32);
  expectProblem(await ask(pair, METADATA), 429, 'too_many_streams', { retryable: 'new message' });
  const other = { headers: { Cookie: await pair.relay.signIn(OTHER_USER) } };
  hanging.push(ask(pair, SUSPEND), ask(pair, METADATA, other));
  await until(() => requests.length === 34);
  for (const socket of sockets) socket.write(jsonAnswer('200 OK', {}));
  for (const { status } of await Promise.all(hanging)) expect(status).toBe(200);
  // The places are free again.
  const next = ask(pair, METADATA);
  await until(() => requests.length === 35);
  for (const socket of sockets) if (!socket.destroyed) socket.write(jsonAnswer('200 OK', {}));
  expect((await next).status).toBe(200);
});
