import { ReadableStream as NodeStream } from 'node:stream/web';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { createBotClient } from '../../src/client/session/bot-client.ts';
import { type ClientPair, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { ALL_BUT_INTERVALS } from '../harness/clock/intervals.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const TEXT = [
  'event: delta\ndata: {"text":"hé 🦊"}\nid: a-1\n\n',
  ': a comment\n\n',
  'data: no JSON: 🦊\n\n',
  'data: [1,\r\ndata: 2]\r\n\r\n',
  'data:42\r\n\r\n',
  'event: empty\ndata\n\n',
  'event: no data, no event\n\n',
].join('');
const unknown = { known: false, runId: undefined, id: undefined };
const EVENTS = [
  { ...unknown, eventType: 'delta', raw: { text: 'hé 🦊' }, id: 'a-1' },
  { ...unknown, eventType: 'message', raw: 'no JSON: 🦊' },
  { ...unknown, eventType: 'message', raw: [1, 2] },
  { ...unknown, eventType: 'message', raw: 42 },
  { ...unknown, eventType: 'empty', raw: '' },
];

let pair: ClientPair | undefined;
afterEach(async () => {
  jest.useRealTimers();
  await pair?.close();
  pair = undefined;
});

/** A client whose answers arrive in exactly these pieces. */
function clientOf(pieces: () => AsyncIterable<Uint8Array> | Iterable<Uint8Array>, silenceMs = 45_000) {
  const answer = () => {
    const headers = { 'Content-Type': 'text/event-stream' };
    return Promise.resolve(new Response(NodeStream.from(pieces()) as BodyInit, { headers }));
  };
  return createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', silenceMs, fetch: answer });
}

describe('the events of an answer', () => {
  test('arrive in order with type, data and id, where JSON is parsed and other text kept', async () => {
    pair = await startClientPair((socket) => void socket.write(wholeStream(TEXT)));
    expect(await readAll(pair.client.send('hi'))).toEqual({ events: EVENTS, error: undefined });
  });

  test('are the same byte by byte through the relay', async () => {
    pair = await startClientPair(async (socket) => {
      socket.write(STREAM_HEAD);
      for (const byte of Buffer.from(TEXT)) {
        socket.write(chunk(Buffer.from([byte])));
        await new Promise(setImmediate);
      }
      socket.write(LAST_CHUNK);
    });
    expect((await readAll(pair.client.send('hi'))).events).toEqual(EVENTS);
  });

  test.each([
    ['as it is', TEXT],
    ['with CRLF', TEXT.replace(/\r?\n/g, '\r\n')],
    ['with CR', TEXT.replace(/\r?\n/g, '\r')],
    ['with a BOM', `\uFEFF${TEXT}`],
  ])('are the same wherever the stream is split, %s', async (_, text) => {
    const bytes = Buffer.from(`${text}\n`);
    for (let at = 0; at <= bytes.length; at++) {
      const client = clientOf(() => [bytes.subarray(0, at), bytes.subarray(at)]);
      expect([at, (await readAll(client.send('hi'))).events]).toEqual([at, EVENTS]);
    }
    const client = clientOf(() => Array.from(bytes, (byte) => Uint8Array.of(byte)));
    expect((await readAll(client.send('hi'))).events).toEqual(EVENTS);
  });

  test('arrive one by one, as they are written', async () => {
    const toWrite = ['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n'];
    let writeNext = () => {};
    pair = await startClientPair((socket) => {
      socket.write(STREAM_HEAD);
      writeNext = () => {
        const next = toWrite.shift();
        socket.write(next ? chunk(next) : LAST_CHUNK);
      };
      writeNext();
    });
    // The next event is written only after this one was read.
    const { events } = await readAll(pair.client.send('hi'), () => writeNext());
    expect(events.map(({ raw }) => raw)).toEqual([1, 2, 3]);
  });

  test('do not include an incomplete one at the end', async () => {
    const client = clientOf(() => [Buffer.from('data: 1\n\ndata: 2\nid: b\n')]);
    expect(await readAll(client.send('hi'))).toEqual({
      events: [{ ...unknown, eventType: 'message', raw: 1 }],
      error: undefined,
    });
  });

  test('are none for an empty stream', async () => {
    const client = clientOf(() => []);
    expect(await readAll(client.send('hi'))).toEqual({ events: [], error: undefined });
  });
});

describe('silence', () => {
  const HEARTBEAT_MS = 50;
  const SILENCE_MS = 500;

  test('with heartbeats is no failure, and the heartbeats are no events', async () => {
    let beats = 0;
    /** Counts the bytes between the events. */
    const counted: typeof fetch = async (url, init) => {
      const response = await fetch(url, init);
      const [mine, counted] = (response.body as ReadableStream<Uint8Array>).tee();
      void (async () => {
        for await (const bytes of counted as unknown as AsyncIterable<Uint8Array>)
          if (Buffer.from(bytes).equals(Buffer.from(':\n'))) beats++;
      })();
      return new Response(mine, response);
    };
    pair = await startClientPair(
      async (socket) => {
        socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
        await until(() => beats * HEARTBEAT_MS > 2 * SILENCE_MS);
        socket.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
      },
      { HEARTBEAT_MS: String(HEARTBEAT_MS) },
      { silenceMs: SILENCE_MS, fetch: counted },
    );
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(error).toBeUndefined();
    expect(events.map(({ raw }) => raw)).toEqual([1, 2]);
  });

  test('ends the message with connection_silent and closes the connection to the bot service', async () => {
    let closed = false;
    pair = await startClientPair(
      (socket) => {
        socket.once('close', () => {
          closed = true;
        });
        socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
      },
      { HEARTBEAT_MS: '0' },
      { silenceMs: 200 },
    );
    const stream = pair.client.send('hi');
    const { events, error } = await readAll(stream);
    expect(events).toHaveLength(1);
    expect(error).toMatchObject({
      name: 'RelayError',
      code: 'connection_silent',
      status: 0,
      requestId: stream.requestId,
    });
    await until(() => closed);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('does not include the time of a slow reader between two events', async () => {
    jest.useFakeTimers({ doNotFake: [...ALL_BUT_INTERVALS] });
    const client = clientOf(
      () => ['data: 1\n\ndata: 2\n\n', 'data: 3\n\n'].map((text) => Buffer.from(text)),
      200,
    );
    const { events, error } = await readAll(client.send('hi'), () => jest.advanceTimersByTime(1_000));
    expect(error).toBeUndefined();
    expect(events).toHaveLength(3);
  });

  test('does not include the time in which the page is busy', async () => {
    const silenceMs = 100;
    const client = clientOf(async function* () {
      yield Buffer.from('data: 1\n\n');
      await new Promise<void>((resolve) => {
        setTimeout(() => {
          // The bytes that arrived meanwhile are read after the timers that are due.
          setImmediate(() => setTimeout(resolve));
          const from = performance.now();
          while (performance.now() - from < 3 * silenceMs);
          // The page has begun to wait before.
        }, 20);
      });
      yield Buffer.from('data: 2\n\n');
    }, silenceMs);
    const { events, error } = await readAll(client.send('hi'));
    expect(error).toBeUndefined();
    expect(events).toHaveLength(2);
  });

  test('can be allowed for ever', async () => {
    jest.useFakeTimers({ doNotFake: [...ALL_BUT_INTERVALS] });
    const client = clientOf(async function* () {
      yield Buffer.from('data: 1\n\n');
      await new Promise(setImmediate);
      jest.advanceTimersByTime(24 * 3_600_000);
      yield Buffer.from('data: 2\n\n');
    }, Number.POSITIVE_INFINITY);
    expect(await readAll(client.send('hi'))).toMatchObject({ events: { length: 2 }, error: undefined });
  });
});
