import { spawn } from 'node:child_process';
import { getEventListeners, once } from 'node:events';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { type MessageState, RelayError } from '../../src/client/session/bot-client.ts';
import { type ClientPair, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { breaks, checkScripts, refuses, scripted } from '../harness/clients/scripted.ts';
import { until } from '../harness/clock/until.ts';
import { USER } from '../harness/relay/relay.ts';
import { chunk, LAST_CHUNK, plainAnswer, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

let pair: ClientPair;
/** The connection of the newest request at the bot service, and how it is answered. */
let newest: Socket | undefined;
let answer: Parameters<typeof startClientPair>[0] = () => {};
beforeAll(async () => {
  pair = await startClientPair(
    (socket, request) => {
      newest = socket;
      answer(socket, request);
    },
    { CHANNELS: 'shared', HEARTBEAT_MS: '0' },
  );
});
afterAll(() => pair.close());
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

/** Has the bot service answer like this from now on. */
function answerBy(onRequest: typeof answer): void {
  pair.upstream.requests.length = 0;
  answer = onRequest;
}

const begun = (body: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(body)]);
const REASON = new Error('the user has pressed stop');
/** The relay has closed the connection of the newest request. */
const closed = () => until(() => newest?.closed === true);

describe('the state of a message', () => {
  test('is waiting until the headers with the request id, then streaming, and done at the end', async () => {
    answerBy(() => {});
    const states: [MessageState, string | undefined][] = [];
    const stream = pair.client.send('hi', { onState: (state) => states.push([state, stream.requestId]) });
    expect(stream).toMatchObject({ state: 'waiting', requestId: undefined });
    const read = readAll(stream);
    await until(() => pair.upstream.requests.length === 1);
    expect(stream).toMatchObject({ state: 'waiting', requestId: undefined });
    expect(states).toEqual([]);
    newest?.write(STREAM_HEAD);
    await until(() => states.length > 0);
    const { requestId } = stream;
    expect(requestId).toMatch(/./);
    expect(states).toEqual([['streaming', requestId]]);
    newest?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    expect(await read).toMatchObject({ events: [{ raw: 1 }], error: undefined });
    expect(stream.state).toBe('done');
    expect(states.slice(1)).toEqual([['done', requestId]]);
    const line = await pair.relay.logLine((one) => one.requestId === requestId && 'outcome' in one);
    expect(line).toMatchObject({ outcome: 'ok' });
  });
});

describe('a message', () => {
  test('is sent when its answer is read, and never before', async () => {
    answerBy((socket) => void socket.write(wholeStream('data: 1\n\n')));
    pair.client.send('nobody reads this');
    expect(await readAll(pair.client.send('this'))).toMatchObject({ error: undefined });
    expect(pair.upstream.requests.map(({ body }) => JSON.parse(String(body)).text)).toEqual(['this']);
  });

  test('is not sent a second time by a second loop over its answer, which throws', async () => {
    answerBy((socket) => void socket.write(wholeStream('data: 1\n\ndata: 2\n\n')));
    const { client } = pair;
    const once = new Error('An answer can be read once.');
    for (const stream of [client.send('hi'), botConversation(client, 'a').history()]) {
      expect(await readAll(stream)).toMatchObject({ events: { length: 2 }, error: undefined });
      expect(await readAll(stream)).toEqual({ events: [], error: once });
    }
    const left = client.send('hi');
    for await (const _ of left) break;
    expect(await readAll(left)).toEqual({ events: [], error: once });
    expect(pair.upstream.requests).toHaveLength(3);
  });

  test('is a text in the form of the bots, or an object of the page', async () => {
    answerBy((socket) => void socket.write(wholeStream()));
    for (const message of ['hi', 'again', { customChannelId: 'c', any: ['thing'] }])
      await readAll(pair.client.send(message));
    const sent = pair.upstream.requests.map(({ body }) => JSON.parse(String(body)));
    const text = {
      customChannelId: sent[0].customChannelId,
      customMessageId: expect.any(String),
      action: 'NONE',
    };
    expect(sent).toEqual([
      { ...text, text: 'hi' },
      { ...text, text: 'again' },
      { customChannelId: 'c', any: ['thing'] },
    ]);
    expect(sent[0].customMessageId).not.toBe(sent[1].customMessageId);
    expect(sent[0].customChannelId).toMatch(/.{16}/);
  });
});

describe('a message that is stopped throws the reason of its signal', () => {
  test('before it was sent, and is never sent', async () => {
    answerBy(() => {});
    const stream = pair.client.send('hi', { signal: AbortSignal.abort(REASON) });
    expect(await readAll(stream)).toEqual({ events: [], error: REASON });
    expect(stream.state).toBe('done');
    expect(pair.upstream.requests).toHaveLength(0);
  });

  test('while it waits, and the upstream sees the connection close', async () => {
    answerBy(() => {});
    const abort = new AbortController();
    const stream = pair.client.send('hi', { signal: abort.signal });
    const read = readAll(stream);
    await pair.upstream.nextRequest();
    abort.abort(REASON);
    expect(await read).toEqual({ events: [], error: REASON });
    expect(stream.state).toBe('done');
    await closed();
  });

  test('during its stream, and the upstream sees the connection close', async () => {
    answerBy((socket) => void socket.write(begun('data: 1\n\n')));
    const abort = new AbortController();
    let heard = 0;
    const read = readAll(pair.client.send('hi', { signal: abort.signal }), () => heard++);
    await until(() => heard === 1);
    abort.abort(REASON);
    expect(await read).toMatchObject({ events: [{ raw: 1 }], error: REASON });
    await closed();
  });

  test('between two events that arrived together, and the second is not read', async () => {
    answerBy((socket) => void socket.write(wholeStream('data: 1\n\ndata: 2\n\n')));
    const abort = new AbortController();
    const { signal } = abort;
    const read = await readAll(pair.client.send('hi', { signal }), () => abort.abort(REASON));
    expect(read).toMatchObject({ events: [{ raw: 1 }], error: REASON });
  });

  test.each(['in the pause before it is resumed', 'by the caller of onState in that pause'])(
    '%s',
    async (when) => {
      const server = await scripted({ answers: [breaks('retry: 600000\nid: 1\ndata: 1\n\n')] });
      const { client, calls } = server;
      closers.push(server.close);
      const abort = new AbortController();
      const states: MessageState[] = [];
      const onState = (state: MessageState) => {
        states.push(state);
        if (state !== 'waiting') return;
        if (when.startsWith('by')) abort.abort(REASON);
        else setImmediate(() => abort.abort(REASON));
      };
      // Without a name, it is resumed after the pause that the stream says.
      const read = await readAll(client.send({ text: 'hi' }, { signal: abort.signal, onState }));
      expect(read).toMatchObject({ events: [{ raw: 1 }], error: REASON });
      expect(states).toEqual(['streaming', 'waiting', 'done']);
      expect(calls()).toEqual(['POST']);
    },
  );

  test('which is an AbortError or a TimeoutError if the page gives no reason', async () => {
    answerBy(() => {});
    const abort = new AbortController();
    const read = readAll(pair.client.send('hi', { signal: abort.signal }));
    await pair.upstream.nextRequest();
    abort.abort();
    expect((await read).error).toMatchObject({ name: 'AbortError' });
    const { error } = await readAll(pair.client.send('hi', { signal: AbortSignal.timeout(50) }));
    expect(error).toMatchObject({ name: 'TimeoutError' });
  });
});

test('leaving the loop closes the connection to the bot service', async () => {
  answerBy((socket) => void socket.write(begun('data: 1\n\ndata: 2\n\n')));
  const stream = pair.client.send('hi');
  for await (const _ of stream) break;
  expect(stream.state).toBe('done');
  await closed();
});

describe('no resource is left', () => {
  test('on a signal that messages of each end share', async () => {
    const ways = [
      (socket: Socket) => socket.write(wholeStream('data: 1\n\n')),
      (socket: Socket) => socket.write(plainAnswer('400 Bad', ['Content-Type: application/json'], '{}')),
      (socket: Socket) => socket.write(begun('data: 1\n\n')),
      (socket: Socket) => socket.end(begun('data: {"half')),
    ];
    let asked = 0;
    answerBy((socket) => ways[asked++ % ways.length]?.(socket));
    const { signal } = new AbortController();
    const ends: string[] = [];
    for (const _ of ways)
      try {
        for await (const _ of pair.client.send('hi', { signal })) break;
        ends.push('left');
      } catch (error) {
        ends.push((error as RelayError).code);
      }
    expect(ends).toEqual(['left', 'upstream_refused', 'left', 'upstream_stream_broken']);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  // A timer would keep the process alive for 45 seconds, and an unhandled rejection would end it with code 1.
  test('in a process, which ends when its messages have ended', async () => {
    const ways: Record<string, (socket: Socket) => unknown> = {
      whole: (socket) => socket.write(wholeStream('data: 1\n\n')),
      lost: (socket) => socket.end(begun('data: {"half')),
      left: (socket) => socket.write(begun('data: 1\n\n')),
      silent: (socket) => socket.write(begun('data: 1\n\n')),
      stopped: (socket) => socket.write(begun('data: 1\n\n')),
      paused: (socket) => socket.end(begun('retry: 600000\nid: 1\ndata: 1\n\n')),
      waiting: () => {},
    };
    answerBy((socket, { body }) => ways[JSON.parse(String(body)).text]?.(socket));
    const program = `
      const { createBotClient } = await import(process.env.CLIENT);
      const settings = { expert: { cookies: 'keep' }, baseUrl: process.env.RELAY, namespace: 'acme', botProviderName: 'helper' };
      const client = createBotClient(settings);
      const { user } = await client.signIn(process.env.NAME, process.env.PASSWORD);
      const impatient = createBotClient({ ...settings, expert: { silenceMs: 200, cookies: 'keep' } });
      await impatient.signIn(process.env.NAME, process.env.PASSWORD);
      async function ended(text, { by = client, ...options } = {}, onEvent = () => false) {
        try {
          for await (const event of by.send(text, options)) if (onEvent(event)) break;
          return 'done';
        } catch (error) {
          return error.code || error.message;
        }
      }
      const abort = new AbortController();
      const stop = () => abort.abort(Error('stop'));
      const { signal } = abort;
      const all = [
        ended('whole'), ended('lost'), ended('left', {}, () => true), ended('silent', { by: impatient }),
        ended('stopped', { signal }), ended('paused', { signal }), ended('waiting', { signal }),
      ];
      await Promise.all(all.slice(0, 4));
      setTimeout(stop, 100);
      console.log((await Promise.all(all)).join());
    `;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      env: {
        CLIENT: fileURLToPath(new URL('../../src/client/session/bot-client.ts', import.meta.url)),
        RELAY: pair.relay.url,
        NAME: USER.name,
        PASSWORD: USER.password,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 30_000,
    });
    const [out, err, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'close'),
    ]);
    expect({ out, err, code }).toEqual({
      out: 'done,upstream_stream_broken,done,connection_silent,stop,stop,stop\n',
      err: '',
      code: 0,
    });
  });
});

const ID = expect.stringMatching(/^[A-Za-z0-9._-]{8,128}$/);

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
    name: 'the stream is cut in the middle of an event',
    upstream: (socket) => void socket.end(Buffer.concat([begun('data: 1\n\n'), chunk('data: {"half')])),
    events: 1,
    error: { code: 'upstream_stream_broken', status: 502, retryable: false },
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
    const { client, upstream: service, close } = await startClientPair(upstream, environment);
    closers.push(close);
    const stream = client.send('hi');
    const read = await readAll(stream);
    expect(read.error).toBeInstanceOf(RelayError);
    expect(read).toMatchObject({ events: { length: events }, error: { ...error, requestId: ID } });
    expect((read.error as RelayError).message).toMatch(/^[A-Z].+\.$/);
    expect((read.error as RelayError).requestId).toBe(stream.requestId);
    expect(stream.state).toBe('done');
    expect(service.requests).toHaveLength(1);
  });

  test('the relay shuts down, which sends nothing and answers with Retry-After', async () => {
    const { client, relay, upstream, close } = await startClientPair(() => {});
    closers.push(close);
    relay.parts.lifecycle.enter('draining');
    const { error } = await readAll(client.send('hi'));
    expect(error).toMatchObject({ code: 'draining', status: 503, retryAfter: 1, requestId: ID });
    expect(upstream.requests).toHaveLength(0);
  });

  const gone = { joined: [refuses(410, 'gone')], said: [], calls: ['POST', 'RUN'] };
  const cause = expect.objectContaining({ message: 'fetch failed' });
  const unreachable = { code: 'unreachable', status: 0, cause };
  checkScripts([
    {
      ...{ ...gone, title: 'the relay resets before its headers', error: unreachable },
      answers: [(socket) => socket.resetAndDestroy()],
    },
    {
      ...{ ...gone, title: 'the relay closes before its headers', error: unreachable },
      answers: [(socket) => void socket.end()],
    },
    {
      ...{ ...gone, title: 'the relay closes after its headers' },
      ...{
        answers: [(socket) => void socket.end(STREAM_HEAD)],
        error: { code: 'connection_lost', status: 0 },
      },
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
    ['HTML', '503 Away', [HTML, 'Retry-After: 7'], '<h1>Hello</h1>', { ...UNREACHABLE, retryAfter: 7 }],
    // It may have passed the message on before it lost the relay.
    ['HTML', '502 Bad', [HTML], '<h1>Hello</h1>', {}],
    ['HTML', '504 Late', [HTML], '<h1>Hello</h1>', {}],
    ['HTML', '200 OK', [HTML], '<h1>Hello</h1>', { hint: expect.stringMatching(/It is not the relay/) }],
    ['JSON', '200 OK', [JSON_TYPE], '{"code":"x"}', { message: expect.stringMatching(/sse with 200\.$/) }],
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

const OTHER_CASE = ['Content-Type: Text/Event-Stream ; charset=utf-8'];
checkScripts([
  {
    title: 'a stream whose content type is written in another way is read',
    answers: [(socket) => void socket.end(plainAnswer('200 OK', OTHER_CASE, 'data: 1\n\n'))],
    ...{ said: [1], calls: ['POST'] },
  },
]);
