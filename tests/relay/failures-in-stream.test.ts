import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { STREAM_HEAD } from '../support/raw-upstream.ts';
import { plainAnswer, type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** A service that does not answer. */
const silent = () => {};

/** How a message fails after it has left: what the service does, and the code, status and `retryable` of the failure. */
const FAILURES: [string, (socket: Socket) => void, code: string, status: number, retryable: unknown][] = [
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

async function ask(onRequest: (socket: Socket) => void, failures: string) {
  pair = await startRelayAndUpstream(onRequest, {
    ...{ FAILURES: failures, RATE_MAX_WAIT_MS: '500', METRICS_PORT: '9090' },
    ...(onRequest === silent && { UPSTREAM_RESPONSE_TIMEOUT_MS: '300' }),
  });
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.closed;
  const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
  return { text: client.text(), line, metrics: await pair.relay.metricsText() };
}

describe.each(FAILURES)(
  'a message that the service answers with %s',
  (_what, fails, code, status, retryable) => {
    test('is answered as a stream with one error event, with FAILURES=stream', async () => {
      const { text, line, metrics } = await ask(fails, 'stream');
      const [head = '', body = ''] = text.split('\r\n\r\n');
      expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
      expect(head).toMatch(/^content-type: text\/event-stream$/im);
      expect(head).toMatch(/^cache-control: no-cache, no-transform$/im);
      expect(head).toMatch(new RegExp(`^content-length: ${body.length}$`, 'im'));
      const [, data = ''] = /^event: error\ndata: (.*)\n\n$/.exec(body) ?? [];
      const requestId = /^x-request-id: (.+)$/im.exec(head)?.[1]?.trim();
      const problem = { code, status, retryable, requestId, eventType: 'asgard.run.error' };
      expect(JSON.parse(data)).toMatchObject(problem);
      expect(line).toMatchObject({ outcome: code, status, requestId });
      expect(metrics).toMatch(
        new RegExp(`^bot_relay_requests_total\\{.*status="${status}",code="${code}"`, 'm'),
      );
    });

    test('is answered with its status, with FAILURES=status', async () => {
      const { text, line } = await ask(fails, 'status');
      expect(text).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
      expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4))).toMatchObject({ code, status, retryable });
      expect(line).toMatchObject({ outcome: code, status });
    });
  },
);

test('the event of a service that asks to wait says for how long, as the header would', async () => {
  const { text } = await ask((socket) => socket.write(plainAnswer('429 No', ['Retry-After: 60'])), 'stream');
  const [, data = ''] = /^data: (.*)$/m.exec(text) ?? [];
  expect(JSON.parse(data)).toMatchObject({ code: 'upstream_rate_limited', retryAfter: 60 });
});

test('the event of a message that may have run names no time for another try', async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor('text/event-stream');
  pair.relay.open.endAll(new Problem('draining', 'Over.', { retryAfter: 5 }));
  await client.closed;
  expect(client.text()).toContain('"code":"draining"');
  expect(client.text()).not.toContain('retryAfter');
});

describe('with FAILURES=stream, a message that has not left', () => {
  test('keeps the status of its refusal', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(plainAnswer('500 No', [])), {
      FAILURES: 'stream',
    });
    const statuses = [];
    for (const init of [{ body: '{"half":' }, { path: '/generic/ns/acme/bot-provider/none/message/sse' }])
      statuses.push((await pair.relay.send(pair.cookie, init)).status);
    statuses.push((await pair.relay.send('')).status);
    expect(statuses).toEqual([400, 404, 401]);
  });

  test('keeps the status of a service that cannot be reached', async () => {
    pair = await startRelayAndUpstream(() => {}, { FAILURES: 'stream' });
    await pair.upstream.close();
    expect((await pair.relay.send(pair.cookie)).status).toBe(502);
  });
});
