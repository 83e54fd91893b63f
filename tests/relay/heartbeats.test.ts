import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { createHeartbeats } from '../../src/relay/message/heartbeats.ts';
import { type Pair, startPair, until } from '../support/pair.ts';
import { dechunk, type RawClient } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';

const PERIOD_MS = 200;
const BEAT = ':\n';
const BOM = '\xef\xbb\xbf';

let pair: Pair;
const pairs: Pair[] = [];
afterEach(() => Promise.all(pairs.splice(0).map((each) => each.close())));

/** An upstream that sends the headers and what the message's `send` says, and leaves the stream open. */
async function start(heartbeatMs = PERIOD_MS) {
  pair = await startPair(
    (socket, { body }) => {
      const { send } = JSON.parse(String(body)) as { send: string };
      socket.write(STREAM_HEAD);
      if (send) socket.write(piece(send));
    },
    { HEARTBEAT_MS: String(heartbeatMs) },
  );
  pairs.push(pair);
}

/** A chunk of the bytes that `text` names in latin1. */
const piece = (text: string) => chunk(Buffer.from(text, 'latin1'));
const body = (client: RawClient) => dechunk(client.text()).body;
const beats = (client: RawClient) => body(client).split(BEAT).length - 1;

/** A stream that has sent `send` (latin1), and the upstream's socket. */
async function stream(send: string): Promise<{ client: RawClient; socket: Socket }> {
  const arrived = pair.upstream.nextRequest();
  const client = pair.ask({ body: JSON.stringify({ send }) });
  await arrived;
  await client.waitFor(send || '\r\n\r\n');
  return { client, socket: pair.upstream.sockets.at(-1) as Socket };
}

/** Waits for `count` beats of a stream that starts now. A stream that was open before could have had as many. */
async function periods(count: number) {
  const { client } = await stream('');
  await until(() => beats(client) >= count);
}

describe('a stream', () => {
  beforeEach(() => start());

  test('has one heartbeat per period of silence (S9)', async () => {
    const { client, socket } = await stream('data: a\n\n');
    await new Promise((resolve) => setTimeout(resolve, 5.5 * PERIOD_MS));
    socket.write(Buffer.concat([piece('data: b\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.waitFor(LAST_CHUNK);
    expect(body(client)).toMatch(/^data: a\n\n(:\n){3,6}data: b\n\n$/);
  });

  test('has none while data flows faster than that (S9)', async () => {
    const { client, socket } = await stream('data: a\n\n');
    const timer = setInterval(() => socket.write(piece('data: b\n\n')), PERIOD_MS / 5);
    await periods(3);
    clearInterval(timer);
    expect(body(client)).toMatch(/^data: a\n\n(data: b\n\n){3,}$/);
  });

  test('has one even before the first byte, if that is late (S9)', async () => {
    const { client } = await stream('');
    await client.waitFor(BEAT);
    expect(body(client)).toBe(BEAT);
  });

  test.each([
    ['an event', 'data: a\n\n'],
    ['an event of CRLF lines', 'data: a\r\n\r\n'],
    ['a comment of the upstream', ': x\n'],
  ])('has heartbeats after %s (S9)', async (_name, sent) => {
    const { client } = await stream(sent);
    await until(() => beats(client) >= 2);
    expect(body(client).startsWith(sent + BEAT + BEAT)).toBe(true);
  });

  test('has none where it would change what a parser reads (S9)', async () => {
    const half = [
      'data: a\n',
      'data: he',
      'data: a\r',
      'data: a\r\r',
      ': x',
      'data: a\r\n\r',
      'i',
      '\xef\xbb',
    ];
    const streams = await Promise.all(half.map((sent) => stream(sent)));
    await periods(3);
    expect(streams.map(({ client }) => body(client))).toEqual(half);
  });

  test('has none while the client does not read (S9)', async () => {
    const blank = Buffer.alloc(32 << 20, '\n');
    const { client, socket } = await stream('');
    client.socket.pause().removeAllListeners('data');
    // An event boundary after every byte: only the client keeps the heartbeats away.
    socket.write(Buffer.concat([chunk(blank), Buffer.from(LAST_CHUNK)]));
    await periods(5);
    expect(socket.writableLength).toBeGreaterThan(0);
    let colons = 0;
    const complete = new Promise<void>((resolve) => {
      client.socket.on('data', (data) => {
        for (let at = data.indexOf(':'); at >= 0; at = data.indexOf(':', at + 1)) colons++;
        if (data.includes(LAST_CHUNK)) resolve();
      });
    });
    client.socket.resume();
    await complete;
    // One could slip between the client's reading again and the upstream's next byte.
    expect(colons).toBeLessThan(2);
  });
});

describe('a BOM', () => {
  beforeEach(() => start());

  test('that comes first passes (S9)', async () => {
    const { client } = await stream(`${BOM}data: a\n\n`);
    expect(body(client)).toBe(`${BOM}data: a\n\n`);
  });

  test('that does not come first passes, also behind a heartbeat (S8, S9)', async () => {
    const { client, socket } = await stream('data: a\n\n');
    await client.waitFor(BEAT);
    socket.write(piece(`${BOM}data: b\n\n`));
    await client.waitFor('data: b\n\n');
    expect(body(client).replaceAll(BEAT, '')).toBe(`data: a\n\n${BOM}data: b\n\n`);
  });

  test('that comes behind a heartbeat and the first event passes (S8, S9)', async () => {
    const { client, socket } = await stream('');
    await client.waitFor(BEAT);
    for (const text of ['data: a\n\n', `${BOM}data: b\n\n`]) {
      socket.write(piece(text));
      await client.waitFor(text);
    }
    expect(body(client).replaceAll(BEAT, '')).toBe(`data: a\n\n${BOM}data: b\n\n`);
  });

  test('that comes behind a heartbeat and is all that comes is dropped (S9)', async () => {
    const { client, socket } = await stream('');
    await client.waitFor(BEAT);
    socket.write(Buffer.concat([piece(BOM), Buffer.from(LAST_CHUNK)]));
    await client.waitFor(LAST_CHUNK);
    expect(body(client).replaceAll(BEAT, '')).toBe('');
  });

  test.each([
    ['whole', [`${BOM}data: a\n\n`]],
    ['on its own', [BOM, 'data: a\n\n']],
    ['split after every byte', [...BOM, 'd', 'ata: a\n\n']],
  ])('that comes behind a heartbeat is dropped: %s (S9)', async (_name, pieces) => {
    const { client, socket } = await stream('');
    await client.waitFor(BEAT);
    for (const text of pieces) socket.write(piece(text));
    await client.waitFor('ata: a\n\n');
    expect(body(client)).toMatch(/^(:\n)+data: a\n\n$/);
  });
});

describe('bytes that only begin like a BOM', () => {
  beforeEach(() => start());

  test.each([
    ['in one chunk', ['\xef\xbc\x9a\n\n']],
    ['split', ['\xef', '\xbc\x9a\n\n']],
    ['split late', ['\xef\xbb', 'data\n\n']],
  ])('pass whole behind a heartbeat: %s (S8, S9)', async (_name, pieces) => {
    const { client, socket } = await stream('');
    await client.waitFor(BEAT);
    for (const text of pieces) socket.write(piece(text));
    await client.waitFor('\n\n');
    expect(body(client).replaceAll(BEAT, '')).toBe(pieces.join(''));
  });

  test('and end the stream pass as well (S8, S9)', async () => {
    const { client, socket } = await stream('');
    await client.waitFor(BEAT);
    socket.write(Buffer.concat([piece('\xef\xbb'), Buffer.from(LAST_CHUNK)]));
    await client.waitFor(LAST_CHUNK);
    expect(body(client).replaceAll(BEAT, '')).toBe('\xef\xbb');
  });
});

test('nothing goes down before the headers of the upstream (S9)', async () => {
  await start();
  let answer = () => {};
  const silent = await startPair((socket) => (answer = () => socket.write(STREAM_HEAD)), {
    HEARTBEAT_MS: String(PERIOD_MS),
  });
  pairs.push(silent);
  const client = silent.ask();
  await periods(3);
  expect(client.text()).toBe('');
  answer();
  await client.waitFor(BEAT);
});

test('HEARTBEAT_MS=0 turns heartbeats off (S9)', async () => {
  await start(0);
  const { client } = await stream('data: a\n\n');
  await start();
  await periods(3);
  expect(body(client)).toBe('data: a\n\n');
});

describe('the heartbeats of all streams', () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  test('share one timer, which runs only while there are streams (S9)', () => {
    const { watch, unwatch } = createHeartbeats(PERIOD_MS);
    const streams = Array.from({ length: 100 }, () => ({ ticks: 0 }));
    let count = 0;
    for (const silence of streams) watch(silence, () => count++);
    expect(jest.getTimerCount()).toBe(1);
    jest.advanceTimersByTime(5.5 * PERIOD_MS);
    expect(count).toBe(5 * streams.length);
    const [last, ...others] = streams as [(typeof streams)[0], ...typeof streams];
    for (const silence of others) unwatch(silence);
    jest.advanceTimersByTime(PERIOD_MS);
    expect(count).toBe(5 * streams.length + 1);
    expect(jest.getTimerCount()).toBe(1);
    unwatch(last);
    expect(jest.getTimerCount()).toBe(0);
    watch(last, () => count++);
    expect(jest.getTimerCount()).toBe(1);
    unwatch(last);
  });

  test('have no timer at all when they are turned off (S9)', () => {
    createHeartbeats(0).watch({ ticks: 0 }, () => {});
    expect(jest.getTimerCount()).toBe(0);
  });
});
