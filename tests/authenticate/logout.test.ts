import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { idOf, stored } from '../harness/relay/sessions.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeEach(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
});
afterEach(() => pair.close());

const session = () => call(pair.relay.port, '/auth/session', { headers: { Cookie: pair.cookie } });
const logout = () =>
  call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });

async function expectEnded() {
  expect(await stored(pair.relay.sessions, idOf(pair.cookie))).toBeNull();
  expectProblem(await session(), 401, 'unauthenticated');
}

describe('logout', () => {
  test('ends the session and removes the cookie', async () => {
    const answer = await logout();
    expect([answer.status, answer.body]).toEqual([204, '']);
    expect(answer.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/);
    await expectEnded();
    expectProblem(await logout(), 401, 'unauthenticated');
  });

  test('is refused by GET, and the session stays', async () => {
    const answer = await call(pair.relay.port, '/auth/logout', { headers: { Cookie: pair.cookie } });
    expectProblem(answer, 405, 'method_not_allowed');
    expect(await session()).toMatchObject({ status: 200 });
  });

  test('during a stream is not undone by the end of the stream', async () => {
    const client = pair.ask({ headers: ['X-Request-Id: open-stream-1'] });
    await client.waitFor('\r\n\r\n');
    expect(await logout()).toMatchObject({ status: 204 });
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await pair.relay.logLine(({ requestId }) => requestId === 'open-stream-1');
    await expectEnded();
  });

  test('is not undone by a message that has read the session before', async () => {
    const { sessions } = pair.relay;
    const extend = sessions.extend.bind(sessions);
    const loggedOut = Promise.withResolvers<void>();
    const extending = new Promise<void>((resolve) => {
      jest.spyOn(sessions, 'extend').mockImplementation(async (...args) => {
        resolve();
        await loggedOut.promise;
        return extend(...args);
      });
    });
    const client = pair.ask();
    await extending;
    expect(await logout()).toMatchObject({ status: 204 });
    loggedOut.resolve();
    await client.waitFor('\r\n\r\n');
    expect(client.text()).toMatch(/^HTTP\/1.1 401 /);
    expect(pair.upstream.sockets).toHaveLength(0);
    await expectEnded();
  });
});
