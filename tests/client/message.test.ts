import { spawn } from 'node:child_process';
import { getEventListeners, once } from 'node:events';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import type { MessageState, RelayError } from '../../src/client/session/bot-client.ts';
import { type ClientPair, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { breaks, scripted } from '../harness/clients/scripted.ts';
import { until } from '../harness/clock/until.ts';
import { USER } from '../harness/relay/relay.ts';
import { chunk, LAST_CHUNK, plainAnswer, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

let pair: ClientPair;
let close = async () => {};
afterEach(() => close());

async function start(...args: Parameters<typeof startClientPair>): Promise<ClientPair> {
  pair = await startClientPair(...args);
  close = pair.close;
  return pair;
}

const begun = (body: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(body)]);
const REASON = new Error('the user has pressed stop');
const closed = (socket: Socket | undefined) => until(() => socket?.closed === true);

describe('the state of a message', () => {
  test('is waiting until the headers with the request id, then streaming, and done at the end', async () => {
    let answer: (bytes: string | Buffer) => void = () => {};
    await start((socket) => {
      answer = (bytes) => socket.write(bytes);
    });
    const states: [MessageState, string | undefined][] = [];
    const stream = pair.client.send('hi', { onState: (state) => states.push([state, stream.requestId]) });
    expect(stream).toMatchObject({ state: 'waiting', requestId: undefined });
    const read = readAll(stream);
    await until(() => pair.upstream.requests.length === 1);
    expect(stream).toMatchObject({ state: 'waiting', requestId: undefined });
    expect(states).toEqual([]);
    answer(STREAM_HEAD);
    await until(() => states.length > 0);
    const { requestId } = stream;
    expect(requestId).toMatch(/./);
    expect(states).toEqual([['streaming', requestId]]);
    answer(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    expect(await read).toMatchObject({ events: [{ raw: 1 }], error: undefined });
    expect(stream.state).toBe('done');
    expect(states.slice(1)).toEqual([['done', requestId]]);
    const line = await pair.relay.logLine((one) => one.requestId === requestId && 'outcome' in one);
    expect(line).toMatchObject({ outcome: 'ok' });
  });

  test('changes to streaming and to done for a message that the service refuses, whose request id is known', async () => {
    await start(
      (socket) => void socket.write(plainAnswer('400 Bad', ['Content-Type: application/json'], '{}')),
    );
    const states: MessageState[] = [];
    const stream = pair.client.send('hi', { onState: (state) => states.push(state) });
    const { error } = await readAll(stream);
    expect(error).toMatchObject({ code: 'upstream_refused', status: 400, requestId: stream.requestId });
    expect(stream.requestId).toMatch(/./);
    // What has left is answered by a stream.
    expect(states).toEqual(['streaming', 'done']);
  });
});

describe('a message', () => {
  test('is sent when its answer is read, and never before', async () => {
    await start((socket) => void socket.write(wholeStream('data: 1\n\n')));
    pair.client.send('nobody reads this');
    expect(await readAll(pair.client.send('this'))).toMatchObject({ error: undefined });
    expect(pair.upstream.requests.map(({ body }) => JSON.parse(String(body)).text)).toEqual(['this']);
  });

  test('is not sent a second time by a second loop over its answer, which throws', async () => {
    await start((socket) => void socket.write(wholeStream('data: 1\n\ndata: 2\n\n')));
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
    await start((socket) => void socket.write(wholeStream()), { CHANNELS: 'shared' });
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
    await start(() => {});
    const stream = pair.client.send('hi', { signal: AbortSignal.abort(REASON) });
    expect(await readAll(stream)).toEqual({ events: [], error: REASON });
    expect(stream.state).toBe('done');
    expect(pair.upstream.requests).toHaveLength(0);
  });

  test('while it waits, and the upstream sees the connection close', async () => {
    await start(() => {});
    const abort = new AbortController();
    const stream = pair.client.send('hi', { signal: abort.signal });
    const read = readAll(stream);
    await pair.upstream.nextRequest();
    abort.abort(REASON);
    expect(await read).toEqual({ events: [], error: REASON });
    expect(stream.state).toBe('done');
    await closed(pair.upstream.sockets[0]);
  });

  test('during its stream, and the upstream sees the connection close', async () => {
    await start((socket) => void socket.write(begun('data: 1\n\n')));
    const abort = new AbortController();
    let heard = 0;
    const read = readAll(pair.client.send('hi', { signal: abort.signal }), () => heard++);
    await until(() => heard === 1);
    abort.abort(REASON);
    expect(await read).toMatchObject({ events: [{ raw: 1 }], error: REASON });
    await closed(pair.upstream.sockets[0]);
  });

  test('between two events that arrived together, and the second is not read', async () => {
    await start((socket) => void socket.write(wholeStream('data: 1\n\ndata: 2\n\n')));
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
      close = server.close;
      const abort = new AbortController();
      const states: MessageState[] = [];
      const onState = (state: MessageState) => {
        states.push(state);
        if (state !== 'waiting') return;
        if (when.startsWith('by')) abort.abort(REASON);
        else setImmediate(() => abort.abort(REASON));
      };
      const read = await readAll(client.send('hi', { signal: abort.signal, onState }));
      expect(read).toMatchObject({ events: [{ raw: 1 }], error: REASON });
      expect(states).toEqual(['streaming', 'waiting', 'done']);
      expect(calls()).toEqual(['POST']);
    },
  );

  test('which is an AbortError or a TimeoutError if the page gives no reason', async () => {
    await start(() => {});
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
  await start((socket) => void socket.write(begun('data: 1\n\ndata: 2\n\n')));
  const stream = pair.client.send('hi');
  for await (const _ of stream) break;
  expect(stream.state).toBe('done');
  await closed(pair.upstream.sockets[0]);
});

describe('no resource is left', () => {
  test('on a signal that forty messages shared', async () => {
    const ways = [
      (socket: Socket) => socket.write(wholeStream('data: 1\n\n')),
      (socket: Socket) => socket.write(plainAnswer('400 Bad', ['Content-Type: application/json'], '{}')),
      (socket: Socket) => socket.write(begun('data: 1\n\n')),
      (socket: Socket) => socket.end(begun('data: {"half')),
    ];
    let asked = 0;
    await start((socket) => ways[asked++ % ways.length]?.(socket), {
      RATE_LIMIT: '100000',
      // A stream that was left counts until the relay has noticed.
      MAX_STREAMS_PER_USER: '1000',
    });
    const { signal } = new AbortController();
    const ends: Record<string, number> = {};
    const one = async () => {
      let end = 'left';
      try {
        for await (const _ of pair.client.send('hi', { signal })) break;
      } catch (error) {
        end = (error as RelayError).code;
      }
      ends[end] = (ends[end] ?? 0) + 1;
    };
    for (let sent = 0; sent < 40; sent += 5) await Promise.all([one(), one(), one(), one(), one()]);
    expect(ends).toEqual({ left: 20, upstream_refused: 10, upstream_stream_broken: 10 });
    expect(pair.upstream.requests).toHaveLength(40);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  }, 60_000);

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
    await start((socket, { body }) => ways[JSON.parse(String(body)).text]?.(socket), {
      HEARTBEAT_MS: '0',
    });
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
  }, 60_000);
});
