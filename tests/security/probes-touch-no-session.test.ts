import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    RATE_LIMIT: '1',
    RATE_WINDOW_MS: '600000',
  });
});
afterAll(() => pair.close());

describe('a probe', () => {
  test('creates, reads and extends no session, sets no cookie and spends no budget', async () => {
    const { sessions } = pair.relay;
    const uses = (['get', 'set', 'extend', 'remove', 'state'] as const).map((method) =>
      jest.spyOn(sessions, method),
    );
    for (const [path, body] of [
      ['/healthz', { status: 'ok' }],
      ['/readyz', { status: 'ready', checks: { accepting: 'ok' } }],
      ['/auth/session', undefined],
    ] as const) {
      for (const headers of [
        {},
        { Cookie: 'bot_relay_session=x.y' },
        path === '/auth/session' ? {} : { Cookie: pair.cookie },
      ]) {
        for (const method of ['GET', 'HEAD']) {
          const answer = await call(pair.relay.port, path, { method, headers });
          expect([path, answer.status]).toEqual([path, body ? 200 : 401]);
          expect(answer.headers).not.toHaveProperty('set-cookie');
          expect(answer.headers['cache-control']).toBe('no-store');
          if (body && method === 'GET') expect(JSON.parse(answer.body)).toEqual(body);
        }
      }
    }
    for (const use of uses) expect(use).not.toHaveBeenCalled();
    expect((await pair.relay.send(pair.cookie)).status).toBe(200);
  });
});
