import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

// Each version in the request line is refused in `tests/guard/refusals.test.ts`.
let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
});
afterAll(() => pair.close());

/** Writes `bytes` one by one. */
async function drip({ socket }: RawClient, bytes: string) {
  for (let at = 0; at < bytes.length && !socket.destroyed; at += 1) {
    socket.write(bytes.slice(at, at + 1));
    await new Promise((resolve) => setImmediate(resolve));
  }
}
async function expectNotHttp(client: RawClient) {
  await client.waitFor('}');
  client.socket.destroy();
  expectProblem(parseAnswer(client.text()), 400, 'bad_request');
}
const statuses = ({ text }: RawClient) => text().match(/HTTP\/1\.1 \d+/g);
const probe = (version: string) => `GET /healthz ${version}\r\nHost: a\r\n\r\n`;

describe.each([
  ['RTSP', `DESCRIBE /healthz RTSP/1.0\r\nHost: a\r\n\r\n`],
  ['RTSP with spaces and empty lines', '\r\n\n\rGET   /healthz   RTSP/1.0\r\nHost: a\r\n\r\n'],
  ['ICE', 'SOURCE /healthz ICE/1.0\r\nHost: a\r\n\r\n'],
])('a request of %s', (_name, bytes) => {
  test('is answered with 400, at once or byte by byte', async () => {
    await expectNotHttp(rawClient(pair.relay.port, bytes));
    const slow = rawClient(pair.relay.port, '');
    await drip(slow, bytes);
    await expectNotHttp(slow);
  });

  test('after a request of HTTP is not served', async () => {
    const client = rawClient(pair.relay.port, probe('HTTP/1.1'));
    await client.waitFor('"}');
    client.socket.write(bytes);
    await client.closed;
    expect(statuses(client)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400']);
  });
});

test('RTSP after a long body is answered with 400, at whatever position its line begins', async () => {
  for (let length = 1000; length < 1060; length += 7) {
    const body = JSON.stringify('x'.repeat(length));
    const client = rawClient(pair.relay.port, rawMessage({ body }) + probe('RTSP/1.0'));
    await client.closed;
    expect(client.text()).not.toContain('"ok"');
  }
});

test('RTSP directly after a body of capital letters is answered with 400, wherever its line is split', async () => {
  const first = 'GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nABC';
  const line = 'GET /healthz RTSP/1.0';
  for (let at = 0; at < line.indexOf('/1.0'); at += 1) {
    const client = rawClient(pair.relay.port, first + line.slice(0, at));
    await client.waitFor('"}');
    client.socket.write(`${line.slice(at)}\r\nHost: a\r\n\r\n`);
    await client.closed;
    expect(statuses(client)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400']);
  }
});

test('RTSP with more spaces than a line may have is answered with 400', async () => {
  const spaces = ' '.repeat(50_000);
  await expectNotHttp(rawClient(pair.relay.port, probe('RTSP/1.0').replace(' ', spaces)));
  await expectNotHttp(rawClient(pair.relay.port, probe('RTSP/1.0').replace(' RTSP', `${spaces}RTSP`)));
});

test.each([
  ['short lines', `${'A'.repeat(13)}${' '.repeat(1000)}\r\n`],
  ['long lines', `${'A'.repeat(13)}${' '.repeat(16_000)}\r\n`],
  ['half lines', `${'A'.repeat(13)} ${'A'.repeat(1000)} ${' '.repeat(16)}A\r\n`],
  ['lines of RTSP', 'GET a RTSP/'],
])('a body of %s that resemble a request line is read like any other', async (_what, part) => {
  const body = part.repeat(Math.ceil(200_000 / part.length));
  const client = rawClient(pair.relay.port, rawMessage({ body }));
  await client.waitFor('}');
  client.socket.destroy();
  expectProblem(parseAnswer(client.text()), 401, 'unauthenticated');
});

test('a message whose text contains RTSP is sent, and a header with the value "host" is no Host', async () => {
  const body = JSON.stringify({ text: `is it\n${probe('RTSP/1.0')}?`, more: 'GET / RTSP/1.0' });
  await pair.ask({ body, headers: ['X-Is: host'] }).waitFor('data: 1');
  expect(String(pair.upstream.requests.at(-1)?.body)).toBe(body);
});
