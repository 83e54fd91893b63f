import { expect, test } from '@jest/globals';
import { answerReader } from '../../bench/support/answer-reader.ts';
import { eventReader, MIN_EVENT_BYTES, restOfEvent, startOfEvent } from '../../bench/support/timed-event.ts';

const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';

/** Gives `pieces` to the reader, one after the other. */
function read(...pieces: string[]): { bodies: string[]; ends: number } {
  const bodies: string[] = [];
  let ends = 0;
  const push = answerReader({
    onBody: (bytes) => bodies.push(bytes.toString('latin1')),
    onEnd: () => ends++,
  });
  for (const piece of pieces) push(Buffer.from(piece, 'latin1'));
  return { bodies, ends };
}

test('the reader of answers gives the body without its framing, and says when the answer is over', () => {
  const { bodies, ends } = read(`${HEAD}5\r\nhello\r\n`, '6\r\n world\r\n', '0\r\n\r\n');
  expect(bodies.join('')).toBe('hello world');
  expect(ends).toBe(1);
});

test('the reader of answers gives the same wherever an answer is split', () => {
  const answer = `${HEAD}5\r\nhello\r\nb\r\n\r\n0\r\n world\r\n0\r\n\r\n`;
  for (let at = 1; at < answer.length; at++) {
    const { bodies, ends } = read(answer.slice(0, at), answer.slice(at));
    expect(bodies.join('')).toBe('hello\r\n0\r\n world');
    expect(ends).toBe(1);
  }
});

test('the reader of answers reads several answers in a row', () => {
  const answer = `${HEAD}2\r\nhi\r\n0\r\n\r\n`;
  expect(read(answer + answer)).toEqual({ bodies: ['hi', 'hi'], ends: 2 });
});

test('an answer that breaks off does not end', () => {
  expect(read(`${HEAD}5\r\nhello\r\n0\r\n`).ends).toBe(0);
});

test('the reader of answers refuses everything but a chunked 200', () => {
  expect(() => read('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n')).toThrow('502');
  expect(() => read('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi')).toThrow('not chunked');
  expect(() => read(`${HEAD}zz\r\n`)).toThrow('no size');
});

const BYTES = 120;
const event = (n: number) => startOfEvent(n) + restOfEvent(BYTES);

/** The delays that the reader finds in `pieces`. */
function delaysIn(...pieces: string[]): number[] {
  const delays: number[] = [];
  const reader = eventReader(BYTES, (delayMs) => delays.push(delayMs));
  for (const piece of pieces) reader.push(Buffer.from(piece, 'latin1'));
  reader.end();
  return delays;
}

test('an event is one event of the given length', () => {
  expect(event(7)).toHaveLength(BYTES);
  expect(event(7)).toMatch(/^data: \{"n":"0*7","at":"\d+","fill":"x+"\}\n\n$/);
  expect(() => restOfEvent(MIN_EVENT_BYTES - 1)).toThrow(RangeError);
});

test('the reader of events gives the delay of each event, wherever the stream is split', () => {
  const stream = event(0) + event(1);
  for (let at = 1; at < stream.length; at++) {
    const delays = delaysIn(stream.slice(0, at), stream.slice(at));
    expect(delays).toHaveLength(2);
    for (const delay of delays) expect(delay).toBeGreaterThanOrEqual(0);
  }
});

test('heartbeats between events are skipped', () => {
  expect(delaysIn(`:\n${event(0)}:`, `\n:\n${event(1)}`)).toHaveLength(2);
});

test('a missing, repeated, changed or incomplete event is an error', () => {
  expect(() => delaysIn(event(0), event(2))).toThrow('event 1');
  expect(() => delaysIn(event(0), event(0))).toThrow('event 1');
  expect(() => delaysIn(event(0).replace('xx', 'xy'))).toThrow('event 0');
  expect(() => delaysIn(event(0).replace('data', 'dado'))).toThrow('event 0');
  expect(() => delaysIn(event(0), event(1).slice(0, 50))).toThrow('inside event 1');
});
