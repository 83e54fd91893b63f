import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { expectNoCanary } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** The client's answer if the upstream answers with this status line, these headers and this chunk. */
async function answerTo(statusLine: string, headers: readonly string[], body: string | Buffer) {
  const head = [`HTTP/1.1 ${statusLine}`, ...headers].join('\r\n');
  pair = await startRelayAndUpstream((socket) => {
    socket.write(`${head}\r\n\r\n`);
    if (/Transfer-Encoding/i.test(head)) socket.write(Buffer.concat([chunk(body), Buffer.from(LAST_CHUNK)]));
  });
  const response = await pair.relay.send(pair.cookie);
  return { response, text: await response.text() };
}

const CHUNKED = 'Transfer-Encoding: chunked';
const EVENT = 'data: a\n\n';

describe('an answer of the bot service', () => {
  test.each([
    'text/event-stream;charset=utf-8',
    'Text/Event-Stream',
    '  text/event-stream ;  charset="UTF-8"',
    'TEXT/EVENT-STREAM; charset=utf-8; a=b',
  ])('with the type "%s" is a stream', async (type) => {
    const { response, text } = await answerTo('200 OK', [CHUNKED, `Content-Type: ${type}`], EVENT);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe(type.trim());
    expect(text).toBe(EVENT);
  });

  test.each([
    ['JSON', '200 OK', [CHUNKED, 'Content-Type: application/json'], '{"leak":1}'],
    ['HTML', '200 OK', [CHUNKED, 'Content-Type: text/html'], '<p>leak</p>'],
    ['no type', '200 OK', [CHUNKED], 'leak'],
    ['a type with the same beginning', '200 OK', [CHUNKED, 'Content-Type: text/event-streams'], 'leak'],
    ['a type with it as a parameter', '200 OK', [CHUNKED, 'Content-Type: a/b; x=text/event-stream'], 'leak'],
    ['204', '204 No Content', ['Content-Type: text/event-stream'], ''],
    ['205', '205 Reset Content', ['Content-Type: text/event-stream', 'Content-Length: 0'], ''],
    [
      'a redirect with the type of a stream',
      '302 Found',
      [CHUNKED, 'Content-Type: text/event-stream', 'Location: /leak'],
      'data: leak\n\n',
    ],
    ['a failing stream', '500 Oops', [CHUNKED, 'Content-Type: text/event-stream'], 'data: leak\n\n'],
    ['503 with JSON', '503 Busy', [CHUNKED, 'Content-Type: application/json'], '{"leak":1}'],
  ])('with %s is upstream_bad_response', async (_name, statusLine, headers, body) => {
    const { response, text } = await answerTo(statusLine, headers, body);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    expect(errorEventIn(text)).toMatchObject({ status: 502, code: 'upstream_bad_response' });
    expect(text).not.toContain('leak');
    expectNoCanary(text);
    // A connection that was kept would get the next message.
    await (await pair.relay.send(pair.cookie)).text();
    expect(pair.upstream.sockets).toHaveLength(2);
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });

  test.each([
    ['Content-Encoding: Identity', CHUNKED],
    ['Transfer-Encoding: Chunked', 'X-Nothing: 1'],
  ])('with the encoding "%s", which changes nothing, is a stream', async (...encoding) => {
    const { text } = await answerTo('200 OK', ['Content-Type: text/event-stream', ...encoding], EVENT);
    expect(text).toBe(EVENT);
  });

  test.each([
    ['Content-Encoding: gzip', CHUNKED],
    ['Content-Encoding: BR', CHUNKED],
    ['Content-Encoding: identity, gzip', CHUNKED],
    ['Transfer-Encoding: gzip, chunked', 'X-Nothing: 1'],
  ])('with an encoded stream, "%s", is upstream_bad_response', async (encoding, framing) => {
    const headers = ['Content-Type: text/event-stream', encoding, framing];
    const { response, text } = await answerTo('200 OK', headers, gzipSync(EVENT));
    expect(response.status).toBe(200);
    expect(response.headers.get('content-encoding')).toBeNull();
    expect(errorEventIn(text)).toMatchObject({ status: 502, code: 'upstream_bad_response' });
  });
});
