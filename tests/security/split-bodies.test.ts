import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { BOT_PATH, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const BODY = '{"text":"Grüße 🤖"}';

let upstream: RawUpstream;
let relay: TestRelay;
let cookie: string;
beforeEach(async () => {
  upstream = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
  relay = await startRelay(upstream.url);
  cookie = await relay.signIn();
});
afterEach(async () => {
  await relay.close();
  await upstream.close();
});

const head = (...headers: string[]) => {
  const fixed = [
    `POST ${BOT_PATH} HTTP/1.1`,
    'Host: a',
    `Cookie: ${cookie}`,
    'Content-Type: application/json',
  ];
  return `${[...fixed, ...headers].join('\r\n')}\r\n\r\n`;
};

/** Writes `bytes` one by one, so that the system can send each in its own packet. */
async function drip(socket: { write(bytes: Uint8Array, done: () => void): unknown }, bytes: Buffer) {
  for (const byte of bytes) await new Promise<void>((sent) => socket.write(Uint8Array.of(byte), sent));
}

function expectForwardedWhole() {
  expect(upstream.requests).toHaveLength(1);
  const [request] = upstream.requests;
  expect(request?.body.toString('utf8')).toBe(BODY);
  expect(request?.all('content-length')).toEqual([String(Buffer.byteLength(BODY))]);
  expect(request?.all('transfer-encoding')).toEqual([]);
}

describe('a body', () => {
  test('that is split across packets is sent upstream complete', async () => {
    const client = rawClient(relay.port, head(`Content-Length: ${Buffer.byteLength(BODY)}`));
    await drip(client.socket, Buffer.from(BODY));
    await client.waitFor(LAST_CHUNK);
    expectForwardedWhole();
    client.socket.destroy();
  });

  test('in chunks, with extensions and trailers, is sent upstream complete and with its length', async () => {
    const client = rawClient(relay.port, head('Transfer-Encoding: chunked', 'Trailer: X-Api-Key'));
    const [first, rest] = [Buffer.from(BODY).subarray(0, 11), Buffer.from(BODY).subarray(11)];
    const extended = Buffer.from(chunk(first).toString('latin1').replace('\r\n', ';x=y\r\n'), 'latin1');
    await drip(
      client.socket,
      Buffer.concat([extended, chunk(rest), Buffer.from('0\r\nX-Api-Key: evil\r\n\r\n')]),
    );
    await client.waitFor(LAST_CHUNK);
    expectForwardedWhole();
    expect(upstream.requests[0]?.all('x-api-key')).toHaveLength(1);
    client.socket.destroy();
  });

  test('shorter than its Content-Length is never forwarded', async () => {
    const client = rawClient(relay.port, head(`Content-Length: ${Buffer.byteLength(BODY) + 1}`) + BODY, {
      allowHalfOpen: true,
    });
    client.socket.end();
    await client.closed;
    if (client.text() !== '') expectProblem(parseAnswer(client.text()), 400, 'bad_request');
    expect(upstream.sockets).toHaveLength(0);
  });

  test.each([
    ['without the last chunk', `5\r\n{"a":\r\n2\r\n1}\r\n`],
    ['with a bad chunk size', `7\r\n{"a":1}\r\nzz\r\n`],
    ['with a chunk that is longer than its size', `6\r\n{"a":1}\r\n0\r\n\r\n`],
    ['with a negative chunk size', `-7\r\n{"a":1}\r\n0\r\n\r\n`],
    ['with a huge chunk size', `fffffffffffffffff\r\n{"a":1}\r\n0\r\n\r\n`],
    ['with bare LF as line ends', `7\n{"a":1}\n0\n\n`],
  ])('in chunks %s is never forwarded', async (_how, chunks) => {
    const client = rawClient(relay.port, head('Transfer-Encoding: chunked') + chunks, {
      allowHalfOpen: true,
    });
    client.socket.end();
    await client.closed;
    if (client.text() !== '') expectProblem(parseAnswer(client.text()), 400, 'bad_request');
    expect(upstream.sockets).toHaveLength(0);
  });

  test('longer than its Content-Length is forwarded at most up to that length', async () => {
    const message = rawMessage({ cookie, body: BODY });
    const client = rawClient(relay.port, Buffer.from(`${message}{"more":"than said"}`));
    await client.closed;
    const forwarded = upstream.requests.map(({ body }) => body.toString('utf8'));
    expect([[], [BODY]]).toContainEqual(forwarded);
    expect(client.text().match(/HTTP\/1\.1 /g)?.length ?? 0).toBeLessThanOrEqual(2);
  });
});
