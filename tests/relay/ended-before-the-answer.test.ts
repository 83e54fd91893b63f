import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, plainAnswer, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const BODY = '{"text":"hi"}';
let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

const logOut = () =>
  call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
const endAll = () => pair.relay.open.endAll(new Problem('draining', 'Gone.', { retryAfter: 1 }));
async function shutDown() {
  await pair.relay.close();
  pair.relay.close = async () => {};
}

describe('a message whose body is still arriving', () => {
  /** Sends a message except its last byte, and waits until the relay reads it. */
  async function unfinished(): Promise<RawClient> {
    pair = await startRelayAndUpstream(() => {});
    const head = rawMessage({ cookie: pair.cookie, body: BODY, headers: ['Expect: 100-continue'] });
    const client = rawClient(pair.relay.port, head.slice(0, -1));
    await client.waitFor('100 Continue');
    return client;
  }

  test.each([
    ['its session is signed out', logOut, 401, 'session_ended'],
    ['all messages were aborted', endAll, 503, 'draining'],
  ] as const)('is not sent upstream once %s', async (_why, end, status, code) => {
    const client = await unfinished();
    await end();
    client.socket.write(BODY.slice(-1));
    await client.waitFor('"requestId"');
    expectProblem(parseAnswer(client.text().slice(client.text().lastIndexOf('HTTP/1.1'))), status, code);
    expect(pair.upstream.sockets).toHaveLength(0);
    client.socket.destroy();
  });

  test('is no longer counted once its client has left', async () => {
    const client = await unfinished();
    expect(pair.relay.open.count()).toBe(1);
    client.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    expect(pair.relay.open.count()).toBe(0);
  });
});

/** Sends a message; resolves once the bot service has received it. */
async function sent(answer: (socket: Socket) => void = () => {}, environment: Record<string, string> = {}) {
  pair = await startRelayAndUpstream(answer, environment);
  const arrived = pair.upstream.nextRequest();
  const client = pair.ask({ headers: ['Connection: close'] });
  await arrived;
  return client;
}

describe('a message that was sent to the bot service', () => {
  test.each([
    ['the relay shuts down before it begins', '', shutDown, 'draining'],
    ['its session ends before it begins', '', logOut, 'session_ended'],
    ['it is aborted in the head of a stream', 'HTTP/1.1 200 OK\r\nContent-Type: text/ev', endAll, 'draining'],
    [
      'it is aborted in a refusal',
      'HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{',
      endAll,
      'draining',
    ],
  ])(
    'is answered, so that nobody sends it again, that its answer is lost when %s',
    async (_when, bytes, end, cause) => {
      const client = await sent((socket) => socket.write(bytes));
      // Once a later request is served, these bytes have arrived.
      await call(pair.relay.port, '/healthz');
      await end();
      await client.closed;
      const answer = parseAnswer(client.text());
      expectErrorEvent(answer, 502, 'answer_lost', { maybeStarted: true, retryable: false });
      expect(answer.headers['retry-after']).toBeUndefined();
      expect(client.text()).not.toContain('retryAfter');
      expect(pair.upstream.requests).toHaveLength(1);
      const line = await pair.relay.logLine(({ outcome }) => outcome === 'answer_lost');
      expect(line).toMatchObject({ level: 'warn', status: 200, cause });
    },
  );

  test.each([
    ['429', { RATE_MAX_WAIT_MS: '60000' }, ['Retry-After: 50']],
    [
      '401',
      {
        ...{ RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '60000' },
        UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
      },
      [],
    ],
  ])(
    'and refused with %s is told that the relay shuts down, and that it may be sent again',
    async (status, environment, headers) => {
      const client = await sent((socket) => socket.write(plainAnswer(`${status} No`, headers)), environment);
      await until(() => pair.upstream.sockets[0]?.destroyed === true);
      endAll();
      await client.closed;
      expectErrorEvent(parseAnswer(client.text()), 503, 'draining', {
        retryable: 'new message',
        retryAfter: 1,
      });
      expect(pair.upstream.requests).toHaveLength(1);
    },
  );
});

const LEAVING: [name: string, leave: (socket: Socket) => unknown][] = [
  ['closes its connection', (socket) => socket.destroy()],
  ['ends its side of the connection', (socket) => socket.end()],
  ['resets its connection', (socket) => socket.resetAndDestroy()],
];
const PLACES: [when: string, bytes: string | Buffer][] = [
  ['before the headers of the answer', ''],
  ['in the middle of the stream', Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: a\n\n')])],
  [
    'while a refusal is being read',
    'HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{',
  ],
];

describe.each(LEAVING)('a client that %s', (_name, leave) => {
  test.each(PLACES)('%s closes the upstream connection, and nothing of it is kept', async (when, bytes) => {
    // A run that nobody reads is over at once.
    const client = await sent((socket) => socket.write(bytes), { JOIN_GRACE_MS: '0' });
    if (when.includes('stream')) await client.waitFor('data: a\n\n');
    expect(pair.relay.open.count()).toBe(1);
    const closed = once(pair.upstream.sockets[0] as Socket, 'close');
    leave(client.socket);
    await closed;
    const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    expect(line).toMatchObject({ outcome: 'client_closed', level: 'info' });
    await until(() => pair.relay.open.count() === 0);
    expect(pair.relay.logs.filter(({ level }) => level !== 'info' && level !== 'debug')).toEqual([]);
    expect(pair.upstream.sockets).toHaveLength(1);
  });
});
