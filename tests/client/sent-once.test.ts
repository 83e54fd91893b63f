import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { createBotClient, RelayError } from '../../src/client/session/bot-client.ts';
import { readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { checkScript, checkScripts, refuses } from '../harness/clients/scripted.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { chunk, plainAnswer, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const ID = expect.stringMatching(/^[A-Za-z0-9._-]{8,128}$/);
const BEGUN = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

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
    error: { code: 'upstream_bad_response', status: 502, upstreamStatus: 503 },
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

describe('a message that a server of plain TCP breaks is sent once:', () => {
  const gone = { joined: [refuses(410, 'gone')], said: [], calls: ['POST', 'RUN'] };
  checkScripts([
    {
      ...{ ...gone, title: 'it resets before its headers', answers: [(socket) => socket.resetAndDestroy()] },
      error: { code: 'unreachable', status: 0 },
    },
    {
      ...{ ...gone, title: 'it closes before its headers', answers: [(socket) => void socket.end()] },
      error: { code: 'unreachable', status: 0 },
    },
    {
      ...{
        ...gone,
        title: 'it closes after its headers',
        answers: [(socket) => void socket.end(STREAM_HEAD)],
      },
      error: { code: 'connection_lost', status: 0 },
    },
  ]);
});

describe('a message that a proxy answers is sent once, and fails with the status of the answer:', () => {
  /** A load balancer has answered, since it could pass the message on to no relay. */
  const UNREACHABLE = {
    code: 'unreachable',
    message: 'The server is unreachable.',
    retryable: 'new message',
  };
  const HTML = 'Content-Type: text/html; charset=utf-8';
  const JSON_TYPE = 'Content-Type: application/json';
  const rows: [string, string, readonly string[], string, object][] = [
    ['HTML', '502 Bad', [HTML], '<h1>Hello</h1>', {}],
    ['HTML', '503 Away', [HTML, 'Retry-After: 7'], '<h1>Hello</h1>', { ...UNREACHABLE, retryAfter: 7 }],
    [
      ...(['HTML', '200 OK', [HTML], '<h1>Hello</h1>'] as const),
      {
        message: expect.stringMatching(/ with 200 and HTML\.$/),
        hint: expect.stringMatching(/ with 200 and HTML\. It is not the relay/),
      },
    ],
    [
      'JSON',
      '200 OK',
      [JSON_TYPE],
      '{"code":"x"}',
      { message: expect.stringMatching(/message\/sse with 200\.$/) },
    ],
    ['JSON', '500 No', [JSON_TYPE], 'null', {}],
    ['nothing', '204 No Content', ['X-Request-Id: of-a-proxy'], '', { requestId: 'of-a-proxy' }],
    ['a date', '503 Away', ['Retry-After: Wed, 21 Oct 2026 07:28:00 GMT'], '', UNREACHABLE],
  ];
  checkScripts(
    rows.map(([what, status, headers, body, fields]) => ({
      title: `${what} with ${status}`,
      answers: [(socket) => void socket.end(plainAnswer(status, headers, body))],
      error: {
        ...{ code: 'unexpected_response', status: Number.parseInt(status, 10) },
        ...{ retryAfter: undefined, retryable: undefined, ...fields },
      },
      ...{ said: [], calls: ['POST'] },
    })),
  );
});

test('a stream whose content type is written in another way is read', () =>
  checkScript({
    title: '',
    answers: [
      (socket) =>
        void socket.end(
          plainAnswer('200 OK', ['Content-Type: Text/Event-Stream ; charset=utf-8'], 'data: 1\n\n'),
        ),
    ],
    ...{ said: [1], calls: ['POST'] },
  }));
