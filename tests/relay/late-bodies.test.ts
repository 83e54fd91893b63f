import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { createUpstream } from '../../src/relay/upstream/send.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';

const BODY = '{"text":"hi"}';

const clients: RawClient[] = [];
let pair: RelayAndUpstream;
beforeEach(async () => {
  pair = await startRelayAndUpstream(() => {});
});
afterEach(async () => {
  for (const { socket } of clients.splice(0)) socket.destroy();
  await pair.close();
});

/** Sends a message except its last byte, and waits until the relay reads it. */
async function unfinished(): Promise<RawClient> {
  const head = rawMessage({ cookie: pair.cookie, body: BODY, headers: ['Expect: 100-continue'] });
  const client = rawClient(pair.relay.port, head.slice(0, -BODY.length));
  clients.push(client);
  client.socket.write(BODY.slice(0, -1));
  await client.waitFor('100 Continue');
  return client;
}

/** Sends the last byte, and returns the problem that is the answer. */
async function finish(client: RawClient) {
  client.socket.write(BODY.slice(-1));
  await client.waitFor('"requestId"');
  return parseAnswer(client.text().slice(client.text().lastIndexOf('HTTP/1.1')));
}

describe('a message whose body is still arriving', () => {
  test('is not sent upstream once its session is signed out', async () => {
    const client = await unfinished();
    const logout = await call(pair.relay.port, '/auth/logout', {
      method: 'POST',
      headers: { Cookie: pair.cookie },
    });
    expect(logout.status).toBe(204);
    expectProblem(await finish(client), 401, 'session_ended');
    expect(pair.upstream.sockets).toHaveLength(0);
  });

  test('is not sent upstream once all messages were aborted', async () => {
    const client = await unfinished();
    pair.relay.open.endAll(new Problem('draining', 'Gone.'));
    expectProblem(await finish(client), 503, 'draining');
    expect(pair.upstream.sockets).toHaveLength(0);
  });

  test('opens no upstream connection if it is already aborted', async () => {
    const { send } = createUpstream(new URL(pair.upstream.url));
    const signal = AbortSignal.abort('the client has left');
    const request = { path: '/', headers: {}, body: Buffer.from(BODY) };
    await expect(send(request, { signal, onDelayed: async () => {}, onSent: () => {} })).rejects.toBe(
      'the client has left',
    );
    await call(pair.relay.port, '/healthz');
    expect(pair.upstream.sockets).toHaveLength(0);
  });

  test('is no longer counted once its client has left', async () => {
    const client = await unfinished();
    expect(pair.relay.open.count()).toBe(1);
    client.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    expect(pair.relay.open.count()).toBe(0);
  });
});
