import { afterEach, describe, expect, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK } from '../harness/service/raw-upstream.ts';

const EVENT = 'data: a\n\n';
const LEAKING = [
  'Set-Cookie: leak=1; Path=/',
  'Set-Cookie: leak=2',
  'Server: leak/1.0',
  'Alt-Svc: h3=":443"; leak=1',
  'Connection: keep-alive, leak',
  'Keep-Alive: timeout=77, max=leak',
  'Strict-Transport-Security: max-age=1; leak',
  'Access-Control-Allow-Origin: https://leak.example',
  'Access-Control-Allow-Credentials: leak',
  'WWW-Authenticate: Basic realm="leak"',
  'Cache-Control: public, leak',
  'X-Powered-By: leak',
  'X-Request-Id: leak-leak-leak',
];
/** Headers that the relay itself does not send either. */
const ABSENT =
  /^(set-cookie|server|alt-svc|strict-transport-security|access-control-.*|www-authenticate|content-length|trailer|x-powered-by):/im;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

async function answered(headers: readonly string[], body: Buffer): Promise<string> {
  const head = ['HTTP/1.1 200 Leak', 'Content-Type: text/event-stream', ...headers].join('\r\n');
  pair = await startRelayAndUpstream((socket) =>
    socket.write(Buffer.concat([Buffer.from(`${head}\r\n\r\n`), body])),
  );
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: EVENT, complete: true });
  return client.text();
}

describe('of the headers of the bot service,', () => {
  test('only the type reaches the client with a chunked stream, and no trailers', async () => {
    const end = Buffer.from('0\r\nX-Leaking-Trailer: leak\r\n\r\n');
    const headers = [...LEAKING, 'Trailer: X-Leaking-Trailer', 'Transfer-Encoding: chunked'];
    const text = await answered(headers, Buffer.concat([chunk(EVENT), end]));
    expect(text).not.toMatch(/leak|timeout=77/i);
    expect(text).not.toMatch(ABSENT);
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  });

  test('the length does not reach the client', async () => {
    const text = await answered([`Content-Length: ${EVENT.length}`], Buffer.from(EVENT));
    expect(text).not.toMatch(ABSENT);
  });

  test('X-Trace-Id reaches the client', async () => {
    const headers = ['X-Trace-Id: trace-1', 'Transfer-Encoding: chunked'];
    const text = await answered(headers, Buffer.concat([chunk(EVENT), Buffer.from(LAST_CHUNK)]));
    expect(text).toMatch(/\r\nX-Trace-Id: trace-1\r\n/i);
  });

  test('one that contains the key does not reach the client', async () => {
    const headers = [`X-Trace-Id: a-${CANARY.key}`, 'Transfer-Encoding: chunked'];
    const text = await answered(headers, Buffer.concat([chunk(EVENT), Buffer.from(LAST_CHUNK)]));
    expect(text).not.toMatch(/x-trace-id/i);
    expect(text).not.toContain(CANARY.key);
  });
});
