import { ReadableStream as NodeStream } from 'node:stream/web';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { type ClientPair, dataOf, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { ALL_BUT_INTERVALS } from '../harness/clock/intervals.ts';
import { until } from '../harness/clock/until.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

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
  return testClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', silenceMs, fetch: answer });
}

/** A part of a stream: its lines, and the event that it is, if any. */
interface Part {
  readonly lines: readonly string[];
  readonly event?: { readonly eventType: string; readonly raw: unknown; readonly id: string | undefined };
}
const word = fc.string({ unit: fc.constantFrom('a', 'é', '🦊', '"', '{', ' ', ':', '1', 'data') });
/** Without backslashes: behind a name with one, V8 may read another escaped name wrongly (nodejs/node#63785). */
const json = fc
  .jsonValue()
  .map((raw) => JSON.stringify(raw))
  .filter((text) => !text.includes('\\\\'));
const data = fc.oneof(
  json.map((text) => ({ lines: [`data: ${text}`], raw: JSON.parse(text) as unknown })),
  // Several lines are one text, which is parsed if it is JSON.
  fc
    .tuple(fc.integer(), fc.integer())
    .map(([a, b]) => ({ lines: [`data: [${a},`, `data: ${b}]`], raw: [a, b] })),
  word.map((text) => ({ lines: [`data:no JSON ${text}`], raw: `no JSON ${text}` })),
  fc.constant({ lines: ['data'], raw: '' }),
);
const parts: fc.Arbitrary<Part> = fc.oneof(
  fc
    .record({
      data,
      eventType: fc.option(fc.constantFrom('delta', 'run', 'é')),
      id: fc.option(
        word.map((text) => `i${text}`),
        { nil: undefined },
      ),
    })
    .map(({ data: { lines, raw }, eventType, id }) => ({
      lines: [
        ...(eventType === null ? [] : [`event: ${eventType}`]),
        ...lines,
        ...(id === undefined ? [] : [`id: ${id}`]),
      ],
      event: { eventType: eventType ?? 'message', raw, id },
    })),
  fc.constant({ lines: [': a comment'] }),
  fc.constant({ lines: ['event: no data, no event'] }),
  fc.constant({ lines: ['other: x', 'retry: 5'] }),
);
const streams = fc.record({
  all: fc.array(parts, { maxLength: 8 }),
  end: fc.constantFrom('\n', '\r\n', '\r'),
  bom: fc.constantFrom('', '\uFEFF'),
  pieces: fc.infiniteStream(fc.integer({ min: 1, max: 30 })),
});

describe('the events of an answer', () => {
  test('are the same however the stream is written and split, and an incomplete one at the end is none', async () => {
    await fc.assert(
      fc.asyncProperty(streams, async ({ all, end, bom, pieces }) => {
        const lines = all.flatMap((part) => [...part.lines, '']);
        let rest = Buffer.from(bom + [...lines, 'data: half', 'id: half'].map((line) => line + end).join(''));
        const split = function* () {
          for (; rest.length > 0; rest = rest.subarray(1)) {
            const size = pieces.next().value ?? 1;
            yield Uint8Array.from(rest.subarray(0, size));
            rest = rest.subarray(size - 1);
          }
        };
        const { events, error } = await readAll(clientOf(split).send('hi'));
        const unknown = { known: false, runId: undefined };
        const expected = all.flatMap(({ event }) => (event ? [{ ...unknown, ...event }] : []));
        expect({ error, events }).toEqual({ error: undefined, events: expected });
      }),
      { numRuns: 300 },
    );
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
    expect(dataOf(events)).toEqual([1, 2, 3]);
  });

  test('end with the error of a relay, wherever its documents are, and not with one of another program', async () => {
    const readError = (type: string) => {
      const problem = JSON.stringify({ type, code: 'answer_lost', status: 502, detail: 'Lost.' });
      return readAll(clientOf(() => [Buffer.from(`event: error\ndata: ${problem}\n\n`)]).send('hi'));
    };
    for (const place of ['/docs/problems.md', 'https://docs.example.com/relay/problems'])
      expect(await readError(`${place}#answer_lost`)).toMatchObject({
        events: [],
        error: { code: 'answer_lost', message: 'Lost.' },
      });
    for (const type of ['error', 'about:blank'])
      expect((await readError(type)).events).toMatchObject([{ raw: { type } }]);
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
