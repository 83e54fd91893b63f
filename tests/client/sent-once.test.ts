import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type BotClient, createBotClient, RelayError } from '../../src/client/session/bot-client.ts';
import { type ClientPair, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { USER } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const ID = expect.stringMatching(/^[A-Za-z0-9._-]{8,128}$/);
const BEGUN = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A client may ask for a stream again by its message's name, which sends nothing. */
const isMessage = ({ requestLine }: RawRequest) => !/^GET \S+\/message\/run\?/.test(requestLine);

interface Failure {
  readonly name: string;
  readonly upstream: (socket: Socket) => void;
  readonly environment?: Record<string, string>;
  readonly events?: number;
  readonly error: object;
}

const FAILURES: Failure[] = [
  {
    name: 'the upstream resets before its headers',
    upstream: (socket) => socket.resetAndDestroy(),
    error: { code: 'upstream_unreachable', status: 502, retryAfter: undefined },
  },
  {
    name: 'the stream is cut between two events',
    upstream: (socket) => void socket.end(BEGUN),
    events: 1,
    error: { code: 'upstream_stream_broken', status: 502 },
  },
  {
    name: 'the stream is cut in the middle of an event',
    upstream: (socket) => void socket.end(Buffer.concat([BEGUN, chunk('data: {"half')])),
    events: 1,
    error: { code: 'upstream_stream_broken', status: 502, retryable: false },
  },
  {
    name: 'the stream is cut inside an event too large to hold',
    upstream: (socket) => void socket.end(Buffer.concat([BEGUN, chunk(`data: ${'x'.repeat(70_000)}`)])),
    events: 1,
    error: { code: 'connection_lost', status: 0 },
  },
  {
    name: 'the deadline passes',
    upstream: (socket) => void socket.write(BEGUN),
    environment: { MAX_EXECUTION_MS: '1500' },
    events: 1,
    error: { code: 'deadline_exceeded', status: 504 },
  },
  {
    name: 'the service answers 429',
    upstream: (socket) => void socket.write(plainAnswer('429 Too Many', ['Retry-After: 7'])),
    error: { code: 'upstream_rate_limited', status: 429, retryAfter: 7, retryable: 'new message' },
  },
  {
    name: 'the service answers 503',
    upstream: (socket) => void socket.write(plainAnswer('503 Busy', ['Retry-After: 7'])),
    error: { code: 'upstream_bad_response', status: 502 },
  },
  {
    name: 'the service does not answer',
    upstream: () => {},
    environment: { UPSTREAM_RESPONSE_TIMEOUT_MS: '300' },
    error: { code: 'upstream_timeout', status: 504 },
  },
];

describe('a message is sent once when', () => {
  test.each(FAILURES)('$name', async ({ upstream, environment, events = 0, error }) => {
    const pair = await startClientPair(upstream, environment);
    closers.push(pair.close);
    const stream = pair.client.send('hi');
    const read = await readAll(stream);
    expect(read.error).toBeInstanceOf(RelayError);
    expect(read).toMatchObject({ events: { length: events }, error: { ...error, requestId: ID } });
    expect((read.error as RelayError).message).toMatch(/^[A-Z].+\.$/);
    expect((read.error as RelayError).requestId).toBe(stream.requestId);
    expect(stream.state).toBe('done');
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('the relay shuts down, which sends nothing and answers with Retry-After', async () => {
    const pair = await startClientPair(() => {});
    closers.push(pair.close);
    pair.relay.lifecycle.enter('draining');
    const { error } = await readAll(pair.client.send('hi'));
    expect(error).toMatchObject({ code: 'draining', status: 503, retryAfter: 1, requestId: ID });
    expect(pair.upstream.requests).toHaveLength(0);
  });

  test('no server listens', async () => {
    const baseUrl = `http://127.0.0.1:${await freePort()}`;
    const client = createBotClient({ baseUrl, namespace: 'a', botProviderName: 'b' });
    const { error } = await readAll(client.send('hi'));
    expect(error).toMatchObject({ name: 'RelayError', code: 'unreachable', status: 0, requestId: undefined });
    expect((error as RelayError).cause).toMatchObject({ message: 'fetch failed' });
  });
});

describe('a message to a server of plain TCP is sent once when', () => {
  const breaks: [string, (socket: Socket) => void, string][] = [
    ['it resets before its headers', (socket) => socket.resetAndDestroy(), 'unreachable'],
    ['it closes before its headers', (socket) => void socket.end(), 'unreachable'],
    ['it closes after its headers', (socket) => void socket.end(STREAM_HEAD), 'connection_lost'],
  ];
  test.each(breaks)('%s', async (_, onRequest, code) => {
    const relay: RawUpstream = await startRawUpstream((socket, request) => {
      if (isMessage(request)) onRequest(socket);
      else socket.write(plainAnswer('410 Gone', []));
    });
    closers.push(relay.close);
    const client = createBotClient({ baseUrl: relay.url, namespace: 'a', botProviderName: 'b' });
    expect(await readAll(client.send('hi'))).toMatchObject({ events: [], error: { code, status: 0 } });
    expect(relay.requests.filter(isMessage)).toHaveLength(1);
  });
});

describe('a message that a proxy answers is sent once, and fails with the status of the answer:', () => {
  const PAGE = '<!doctype html><h1>Hello</h1>';
  /** A load balancer has answered, since it could pass the message on to no relay. */
  const UNREACHABLE = {
    code: 'unreachable',
    message: 'The server is unreachable.',
    retryable: 'new message',
  };
  const answers: [string, number, Record<string, string>, string, object][] = [
    ['HTML with 502', 502, { 'Content-Type': 'text/html' }, PAGE, {}],
    [
      'HTML with 503',
      503,
      { 'Content-Type': 'text/html', 'Retry-After': '7' },
      PAGE,
      { ...UNREACHABLE, retryAfter: 7 },
    ],
    [
      'HTML with 200',
      200,
      { 'Content-Type': 'text/html; charset=utf-8' },
      PAGE,
      {
        message: expect.stringMatching(/ with 200 and HTML\.$/),
        hint: expect.stringMatching(/ with 200 and HTML\. It is not the relay/),
      },
    ],
    [
      'JSON with 200',
      200,
      { 'Content-Type': 'application/json' },
      '{"code":"x"}',
      { message: expect.stringMatching(/\/message\/sse with 200\.$/) },
    ],
    ['JSON with 500', 500, { 'Content-Type': 'application/json' }, 'null', {}],
    ['nothing with 204', 204, { 'X-Request-Id': 'of-a-proxy' }, '', { requestId: 'of-a-proxy' }],
    ['Retry-After with a date', 503, { 'Retry-After': 'Wed, 21 Oct 2026 07:28:00 GMT' }, '', UNREACHABLE],
  ];
  let answer: (res: ServerResponse) => void;
  let asked = 0;
  let pair: ClientPair;
  let front: FakeLoadBalancer;
  let client: BotClient;
  beforeEach(async () => {
    asked = 0;
    front = await startFakeLoadBalancer({
      answer(req, res) {
        if (!req.url?.startsWith('/generic')) return false;
        asked++;
        answer(res);
        return true;
      },
    });
    closers.push(front.close);
    pair = await startClientPair(() => {});
    closers.push(pair.close);
    front.forwardTo(pair.relay.port);
    client = pair.newClient({ baseUrl: front.url });
    await client.signIn(USER.name, USER.password);
  });

  test.each(answers)('%s', async (_, status, headers, body, fields) => {
    answer = (res) => void res.writeHead(status, headers).end(body);
    const { events, error } = await readAll(client.send('hi'));
    expect(events).toEqual([]);
    expect(error).toBeInstanceOf(RelayError);
    expect(error).toMatchObject({
      code: 'unexpected_response',
      status,
      retryAfter: undefined,
      retryable: undefined,
      ...fields,
    });
    expect(asked).toBe(1);
  });

  test('except that a stream whose content type is written in another way is read', async () => {
    answer = (res) =>
      void res.writeHead(200, { 'Content-Type': 'Text/Event-Stream ; charset=utf-8' }).end('data: 1\n\n');
    expect(await readAll(client.send('hi'))).toMatchObject({ events: [{ raw: 1 }], error: undefined });
  });
});
