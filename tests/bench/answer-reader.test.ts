import { expect, test } from '@jest/globals';
import { answerReader } from '../../bench/support/answer-reader.ts';

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

test('the reader gives the body without its framing, and says when the answer is over', () => {
  const { bodies, ends } = read(`${HEAD}5\r\nhello\r\n`, '6\r\n world\r\n', '0\r\n\r\n');
  expect(bodies.join('')).toBe('hello world');
  expect(ends).toBe(1);
});

test('the reader gives the same wherever an answer is split', () => {
  const answer = `${HEAD}5\r\nhello\r\nb\r\n\r\n0\r\n world\r\n0\r\n\r\n`;
  for (let at = 1; at < answer.length; at++) {
    const { bodies, ends } = read(answer.slice(0, at), answer.slice(at));
    expect(bodies.join('')).toBe('hello\r\n0\r\n world');
    expect(ends).toBe(1);
  }
});

test('the reader reads several answers in a row', () => {
  const answer = `${HEAD}2\r\nhi\r\n0\r\n\r\n`;
  expect(read(answer + answer)).toEqual({ bodies: ['hi', 'hi'], ends: 2 });
});

test('an answer that breaks off does not end', () => {
  expect(read(`${HEAD}5\r\nhello\r\n0\r\n`).ends).toBe(0);
});

test('the reader refuses everything but a chunked 200', () => {
  expect(() => read('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n')).toThrow('502');
  expect(() => read('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi')).toThrow('not chunked');
  expect(() => read(`${HEAD}zz\r\n`)).toThrow('no size');
});
