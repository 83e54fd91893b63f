import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { BOT_PATH } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';

const ORIGIN = 'https://partner.example.org';

let pair: RelayAndUpstream;
beforeEach(async () => {
  pair = await startRelayAndUpstream(() => {}, { ALLOWED_ORIGINS: ORIGIN });
});
afterEach(() => pair.close());

describe('while the relay drains', () => {
  test('a message on an open connection is answered with 503, and the connection is closed', async () => {
    const client = rawClient(pair.relay.port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.waitFor('{"status":"ok"}');
    const before = client.text().length;
    pair.relay.lifecycle.enter('draining');
    client.socket.write(rawMessage({ cookie: pair.cookie }));
    expect((await client.closed).error).toBeUndefined();
    const answer = parseAnswer(client.text().slice(before));
    expectProblem(answer, 503, 'draining');
    expect(answer.headers).toMatchObject({ connection: 'close', 'retry-after': '1' });
    expect(pair.upstream.sockets).toHaveLength(0);
  });

  test('a page of an allowed origin can read the refusal, and its preflight is answered', async () => {
    pair.relay.lifecycle.enter('draining');
    const headers = { Origin: ORIGIN };
    const refused = await call(pair.relay.port, BOT_PATH, { method: 'POST', headers });
    expectProblem(refused, 503, 'draining');
    expect(refused.headers).toMatchObject({
      'access-control-allow-origin': ORIGIN,
      'access-control-allow-credentials': 'true',
      'access-control-expose-headers': expect.stringContaining('Retry-After'),
    });
    const preflight = await call(pair.relay.port, BOT_PATH, {
      method: 'OPTIONS',
      headers: { ...headers, 'Access-Control-Request-Method': 'POST' },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers['access-control-allow-origin']).toBe(ORIGIN);
  });

  test('the process counts as alive but not as ready', async () => {
    expect(await call(pair.relay.port, '/readyz')).toMatchObject({ status: 200 });
    pair.relay.lifecycle.enter('draining');
    expect(await call(pair.relay.port, '/healthz')).toMatchObject({ status: 200 });
    const { status, body } = await call(pair.relay.port, '/readyz');
    expect([status, JSON.parse(body)]).toEqual([
      503,
      { status: 'not ready', checks: { accepting: 'failed' } },
    ]);
  });

  test('the probes are answered below BASE_PATH, too', async () => {
    const { relay, close } = await startRelayAndUpstream(() => {}, { BASE_PATH: '/chat-api' });
    relay.lifecycle.enter('draining');
    const answers = await Promise.all(
      ['/chat-api/healthz', '/chat-api/readyz', '/chat-api/auth/session'].map((path) =>
        call(relay.port, path),
      ),
    );
    await close();
    const [alive, ready, other] = answers.map(({ status, body }) => [status, JSON.parse(body)]);
    expect(alive).toEqual([200, { status: 'ok' }]);
    expect(ready).toEqual([503, { status: 'not ready', checks: { accepting: 'failed' } }]);
    expect(other).toMatchObject([503, { code: 'draining' }]);
  });

  test('a relay that is not ready but does not drain yet still serves', async () => {
    pair.relay.lifecycle.enter('leaving');
    expect(await call(pair.relay.port, '/readyz')).toMatchObject({ status: 503 });
    expectProblem(await call(pair.relay.port, '/auth/session'), 401, 'unauthenticated');
  });
});
