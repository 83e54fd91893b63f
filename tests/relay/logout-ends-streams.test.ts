import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { dechunk } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeEach(async () => {
  pair = await startRelayAndUpstream((socket, { body }) => {
    socket.write(STREAM_HEAD);
    socket.write(chunk((JSON.parse(String(body)) as { send: string }).send));
  });
});
afterEach(() => pair.close());

let messages = 0;
/** Opens a stream of the session with `cookie`; it has sent `send`. */
async function stream(cookie: string, send = 'data: a\n\n') {
  // Each is a message of its own: the same bytes would join its run.
  const body = JSON.stringify({ send, text: `hi ${++messages}` });
  const client = pair.ask({ cookie, body, headers: ['Connection: close'] });
  await client.waitFor(send);
  return client;
}

const logout = (cookie: string) =>
  call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });

describe('logout', () => {
  test('ends every open stream of the session with session_ended, and closes their upstreams', async () => {
    const clients = [await stream(pair.cookie), await stream(pair.cookie)];
    expect(await logout(pair.cookie)).toMatchObject({ status: 204 });
    await Promise.all(clients.map(({ closed }) => closed));
    for (const client of clients) {
      const { body, complete } = dechunk(client.text());
      const [before, ending = '', ...more] = body.split('event: error\n');
      expect([before, more, complete]).toEqual(['data: a\n\n', [], true]);
      expect(JSON.parse(ending.replace(/^data: /, ''))).toMatchObject({
        status: 401,
        code: 'session_ended',
        eventType: 'asgard.run.error',
      });
    }
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    const ends = pair.relay.logs.filter(({ bot }) => bot === 'acme/helper').map(({ outcome }) => outcome);
    expect(ends).toEqual(['session_ended', 'session_ended']);
  });

  test('cuts a stream of the session that is inside an event too large to hold', async () => {
    const large = `data: ${'a'.repeat(70_000)}`;
    const client = await stream(pair.cookie, large);
    await logout(pair.cookie);
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: large, complete: false });
  });

  test('does not end streams of another session of the same user', async () => {
    const other = await pair.relay.signIn();
    const mine = await stream(pair.cookie);
    const others = await stream(other);
    await logout(pair.cookie);
    await mine.closed;
    pair.upstream.sockets[1]?.write(Buffer.concat([chunk('data: b\n\n'), Buffer.from(LAST_CHUNK)]));
    await others.closed;
    expect(dechunk(others.text())).toMatchObject({ body: 'data: a\n\ndata: b\n\n', complete: true });
  });
});
