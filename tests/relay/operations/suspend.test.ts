import { afterEach, describe, expect, test } from '@jest/globals';
import { operationRequestBuilder } from '../../../src/relay/operations/operation-request.ts';
import { OPERATIONS, type Operation } from '../../../src/relay/operations/operation-table.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import {
  CHANNEL,
  jsonAnswer,
  SHORT_SUSPEND_PATH,
  SUSPEND_PATH,
  suspend,
} from '../../harness/clients/suspend.ts';
import { sleep } from '../../harness/clock/sleep.ts';
import { CANARY } from '../../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../../harness/relay/relay-and-upstream.ts';

const BOTH_KEYS = {
  CHANNELS: 'shared',
  UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
};

let pair: RelayAndUpstream;
afterEach(() => pair.close());

async function start(answer: string | Buffer, environment: Record<string, string> = {}) {
  pair = await startRelayAndUpstream((socket) => void socket.write(answer), {
    CHANNELS: 'shared',
    ...environment,
  });
}

const receivedKeys = () => pair.upstream.requests.map(({ all }) => all('x-api-key')[0]);

describe('a suspend', () => {
  test.each([SUSPEND_PATH, SHORT_SUSPEND_PATH])('at %s goes upstream with the same path', async (path) => {
    await start(jsonAnswer('200 OK', { suspended: true }));
    const answer = await suspend(pair, { path });
    expect([answer.status, answer.body]).toEqual([200, '{"suspended":true}']);
    expect(answer.headers['content-type']).toBe('application/json');
    const [request] = pair.upstream.requests;
    expect(request?.requestLine).toBe(`POST ${path}${CHANNEL} HTTP/1.1`);
    expect(request?.all('content-length')).toEqual(['0']);
    expect(request?.body.length).toBe(0);
    expect(receivedKeys()).toEqual([CANARY.key]);
  });

  test('goes upstream without BASE_PATH, and below the path of UPSTREAM_BASE_URL', async () => {
    const baseUrl = new URL('https://bots.example/v1/');
    const accepted = {
      operation: OPERATIONS.find(({ path }) => path === 'message/suspend') as Operation,
      shape: '/ns' as const,
      bot: { namespace: 'a b', botProviderName: 'c' },
      query: new URLSearchParams('x=1'),
      ...{ headers: {}, requestId: 'r', userId: 'u', body: undefined },
    };
    expect(operationRequestBuilder({ baseUrl, userHeader: undefined })(accepted).path).toBe(
      '/v1/ns/a%20b/bot-provider/c/message/suspend?x=1',
    );
    await start(jsonAnswer('200 OK', {}), { BASE_PATH: '/relay' });
    expect((await suspend(pair, { path: `/relay${SUSPEND_PATH}` })).status).toBe(200);
    expect(pair.upstream.requests[0]?.requestLine).toBe(`POST ${SUSPEND_PATH}${CHANNEL} HTTP/1.1`);
    expectProblem(await suspend(pair), 404, 'not_found');
  });

  test('is answered 204 without a body when the service answers 204', async () => {
    await start('HTTP/1.1 204 No Content\r\n\r\n');
    const answer = await suspend(pair);
    expect([answer.status, answer.body]).toEqual([204, '']);
  });

  test('is answered 404 with the JSON of the service when there is nothing to stop', async () => {
    await start(jsonAnswer('404 Not Found', { error: { code: 'NO_RUN' } }, ['X-Trace-Id: t-1']));
    const answer = await suspend(pair);
    expect([answer.status, answer.body]).toEqual([404, '{"error":{"code":"NO_RUN"}}']);
    expect(answer.headers['x-trace-id']).toBe('t-1');
    expect(answer.headers['cache-control']).toBe('no-store');
  });
});

describe('a refused key of a suspend', () => {
  test.each(['401 No', '403 No'])('with %s is followed by the next key', async (refusal) => {
    pair = await startRelayAndUpstream(
      (socket, { all }) =>
        void socket.write(
          all('x-api-key')[0] === CANARY.secondKey ? jsonAnswer('200 OK', {}) : plainAnswer(refusal, []),
        ),
      BOTH_KEYS,
    );
    expect((await suspend(pair)).status).toBe(200);
    expect((await suspend(pair)).status).toBe(200);
    expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey, CANARY.secondKey]);
    const lines = new Set(pair.upstream.requests.map(({ requestLine }) => requestLine));
    expect([...lines]).toEqual([`POST ${SUSPEND_PATH}${CHANNEL} HTTP/1.1`]);
    expect(pair.relay.logs.some(({ msg }) => msg === 'upstream key rejected')).toBe(true);
  });

  test('is answered upstream_key_rejected when all keys are refused', async () => {
    await start(plainAnswer('401 No', []), BOTH_KEYS);
    expectProblem(await suspend(pair), 502, 'upstream_key_rejected');
    expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey]);
  });

  test('leaves no open connection, even if its answer never ends', async () => {
    const keys = Array.from({ length: 8 }, (_, n) => `key-of-this-test-${n}`);
    pair = await startRelayAndUpstream(
      (socket, { all }) =>
        void socket.write(
          all('x-api-key')[0] === keys.at(-1)
            ? jsonAnswer('200 OK', { n: 1 })
            : 'HTTP/1.1 401 No\r\nContent-Length: 1000000\r\n\r\nhalf',
        ),
      { UPSTREAM_API_KEYS: keys.join(',') },
    );
    const answer = await suspend(pair);
    expect([answer.status, answer.body]).toEqual([200, '{"n":1}']);
    expect(receivedKeys()).toEqual(keys);
    const open = pair.upstream.sockets.filter((socket) => !socket.destroyed);
    expect(open.length).toBeLessThanOrEqual(1);
  });
});

describe('a suspend is refused', () => {
  const post = { method: 'POST' };

  test.each(['GET', 'HEAD', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])(
    'with 405 for the method %s',
    async (method) => {
      await start('');
      for (const path of [SUSPEND_PATH, SHORT_SUSPEND_PATH]) {
        const answer = await suspend(pair, { path, method });
        expect([answer.status, answer.headers.allow]).toEqual([405, 'POST']);
      }
    },
  );

  test('without a session, from another origin or for an unknown bot', async () => {
    await start('');
    const { port } = pair.relay;
    expectProblem(await call(port, SUSPEND_PATH + CHANNEL, post), 401, 'unauthenticated');
    const foreign = { Origin: 'http://evil.example' };
    expectProblem(await suspend(pair, { headers: foreign }), 403, 'cross_site_request');
    const other = SUSPEND_PATH.replace('helper', 'other');
    expectProblem(await suspend(pair, { path: other }), 404, 'unknown_bot');
    for (const path of [`${SUSPEND_PATH}/`, SUSPEND_PATH.toUpperCase(), `/x${SHORT_SUSPEND_PATH}`])
      expectProblem(await suspend(pair, { path }), 404, 'not_found');
    expect(pair.upstream.requests).toEqual([]);
  });

  test('for a session that sends too many requests', async () => {
    await start(jsonAnswer('200 OK', {}), { CLIENT_LIMIT_PER_SESSION: '1' });
    expect((await suspend(pair)).status).toBe(200);
    expectProblem(await suspend(pair), 429, 'too_many_attempts');
  });
});

describe('the budget of suspends', () => {
  test('is separate from the one of messages, and each request with a key takes a slot', async () => {
    pair = await startRelayAndUpstream(
      (socket, { all, requestLine }) => {
        if (requestLine.includes('/sse')) return;
        socket.write(
          all('x-api-key')[0] === CANARY.key ? plainAnswer('401 No', []) : jsonAnswer('200 OK', {}),
        );
      },
      { ...BOTH_KEYS, RATE_LIMIT: '2', RATE_WINDOW_MS: '5000', RATE_MAX_WAIT_MS: '0' },
    );
    // Use up the budget of the messages.
    for (const text of ['one', 'two']) pair.ask({ body: JSON.stringify({ customChannelId: 'c1', text }) });
    while (pair.upstream.requests.length < 2) await sleep(5);
    const answer = await suspend(pair);
    expect([answer.status, answer.headers['ratelimit-policy']]).toEqual([200, '"endpoint";q=2;w=5']);
    expectProblem(await suspend(pair), 429, 'rate_limited');
    expect(pair.upstream.requests).toHaveLength(4);
  }, 20_000);
});

describe('the log and the metrics of a suspend', () => {
  test('have its route pattern, its bot and its user', async () => {
    await start(jsonAnswer('200 OK', {}), { METRICS_PORT: '9' });
    await suspend(pair, { query: '?custom_channel_id=shown-nowhere' });
    const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    expect(line).toMatchObject({
      route: '/generic/ns/:namespace/bot-provider/:botProviderName/message/suspend',
      ...{ method: 'POST', status: 200, outcome: 'ok', upstreamStatus: 200, userId: 'ada' },
      ...{ slotWaitMs: expect.any(Number), bytes: 2 },
    });
    expect(JSON.stringify(pair.relay.logs)).not.toContain('shown-nowhere');
    const metrics = await pair.relay.metricsText();
    expect(metrics).toMatch(
      /bot_relay_requests_total\{route="[^"]*message\/suspend",.*status="200",code="ok"\} 1/,
    );
    expect(metrics).toMatch(/bot_relay_upstream_responses_total\{key="[0-9a-f]{8}",outcome="2xx"\} 1/);
  });
});
