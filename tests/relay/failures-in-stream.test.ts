import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { Problem, type ProblemCode } from '../../src/errors.ts';
import { parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../harness/relay/relay-and-upstream.ts';
import { STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** A service that does not answer. */
const silent = () => {};

/** How a message fails after it has left: what the service does, and the code, status and `retryable` of the failure. */
const FAILURES: [string, (socket: Socket) => void, ProblemCode, status: number, retryable: unknown][] = [
  ['500', (socket) => socket.write(plainAnswer('500 No', [])), 'upstream_bad_response', 502, false],
  ['422', (socket) => socket.write(plainAnswer('422 No', [])), 'upstream_refused', 422, false],
  ['401', (socket) => socket.write(plainAnswer('401 No', [])), 'upstream_key_rejected', 502, 'new message'],
  [
    '429',
    (socket) => socket.write(plainAnswer('429 No', ['Retry-After: 60'])),
    'upstream_rate_limited',
    429,
    'new message',
  ],
  ['nothing in time', silent, 'upstream_timeout', 504, false],
  ['the end of the connection', (socket) => socket.destroy(), 'upstream_unreachable', 502, false],
];

async function ask(onRequest: (socket: Socket) => void, headers: readonly string[] = []) {
  pair = await startRelayAndUpstream(onRequest, {
    ...{ RATE_MAX_WAIT_MS: '500', METRICS_PORT: '9090' },
    ...(onRequest === silent && { UPSTREAM_RESPONSE_TIMEOUT_MS: '300' }),
  });
  const client = pair.ask({ headers: ['Connection: close', ...headers] });
  await client.closed;
  const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
  return { answer: parseAnswer(client.text()), line, metrics: await pair.relay.metricsText() };
}

describe.each(FAILURES)(
  'a message that the service answers with %s',
  (_what, fails, code, status, retryable) => {
    const level = status < 500 ? 'info' : 'warn';
    const maybeStarted = !['upstream_refused', 'upstream_key_rejected', 'upstream_rate_limited'].includes(
      code,
    );

    test('is answered as a stream with one error event, whose code the log and the metric have', async () => {
      const { answer, line, metrics } = await ask(fails);
      const retryAfter = code === 'upstream_rate_limited' && { retryAfter: 60 };
      const members = { retryable, ...(maybeStarted && { maybeStarted }), ...retryAfter } as object;
      const { requestId } = expectErrorEvent(answer, status, code, members);
      expect(line).toMatchObject({ level, outcome: code, status: 200, requestId });
      expect(metrics).toMatch(
        new RegExp(`^bot_relay_requests_total\\{.*status="200",code="${code}"\\} 1`, 'm'),
      );
    });

    test('is answered with its status if it is a resumption, which is final for clients in the field', async () => {
      const { answer, line } = await ask(fails, ['Last-Event-ID: 7']);
      expect(answer.status).toBe(status);
      expect(JSON.parse(answer.body)).toMatchObject({ code, status, retryable });
      expect(line).toMatchObject({ level, outcome: code, status });
    });
  },
);

test('the event of a message that may have run names no time for another try', async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor('text/event-stream');
  pair.relay.open.endAll(new Problem('draining', 'Over.', { retryAfter: 5 }));
  await client.closed;
  expect(client.text()).toContain('"code":"answer_lost"');
  expect(client.text()).not.toContain('retryAfter');
});

describe('a message that has not left', () => {
  test('keeps the status of its refusal', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(plainAnswer('500 No', [])));
    const statuses = [];
    for (const init of [{ body: '{"half":' }, { path: '/generic/ns/acme/bot-provider/none/message/sse' }])
      statuses.push((await pair.relay.send(pair.cookie, init)).status);
    statuses.push((await pair.relay.send('')).status);
    expect(statuses).toEqual([400, 404, 401]);
  });

  test('keeps the status of a service that cannot be reached', async () => {
    pair = await startRelayAndUpstream(() => {});
    await pair.upstream.close();
    expect((await pair.relay.send(pair.cookie)).status).toBe(502);
  });
});
