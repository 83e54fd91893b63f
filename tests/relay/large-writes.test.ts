import type { ServerResponse } from 'node:http';
import { expect, test } from '@jest/globals';
import { streamWriter } from '../../src/relay/message/stream-writer.ts';

/** What a writer hands over of `chunks`: to the socket, or to the response. */
function written(chunks: readonly Buffer[]) {
  const calls: [to: 'socket' | 'response', bytes: Buffer][] = [];
  const writer = (to: 'socket' | 'response') => (bytes: Buffer) => {
    calls.push([to, bytes]);
    return true;
  };
  const socket = { writable: true, write: writer('socket') };
  const res = { chunkedEncoding: true, destroyed: false, socket, write: writer('response') };
  const { write, flush } = streamWriter(res as unknown as ServerResponse, () => {});
  for (const chunk of chunks) write(chunk);
  flush();
  return calls;
}

test('small chunks leave in one buffer, and large ones without a copy', () => {
  const [small] = written([Buffer.from('a'), Buffer.from('b')]) as [['socket', Buffer]];
  expect([small[0], String(small[1])]).toEqual(['socket', '1\r\na\r\n1\r\nb\r\n']);
  const large = Buffer.alloc(5_000);
  const [only] = written([large]) as [['response', Buffer]];
  expect(only[0]).toBe('response');
  expect(only[1]).toBe(large);
});
