import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { BOT_PATH } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
});
afterAll(() => pair.close());

/** The answer to `bytes` that are sent on a new connection in pieces of `size`. */
async function answerTo(bytes: string, size = bytes.length) {
  const client = rawClient(pair.relay.port, '');
  for (let at = 0; at < bytes.length && !client.socket.destroyed; at += size) {
    client.socket.write(bytes.slice(at, at + size));
    if (size < bytes.length) await new Promise((resolve) => setImmediate(resolve));
  }
  await client.waitFor('}');
  client.socket.destroy();
  return parseAnswer(client.text());
}

const message = (version: string) => rawMessage({ cookie: pair.cookie }).replace('HTTP/1.1', version);
const probe = (version: string) => `GET /healthz ${version}\r\nHost: a\r\n\r\n`;

describe.each(['HTTP/2.0', 'HTTP/0.9', 'RTSP/1.0', 'RTSP/1.1', 'RTSP/2.0'])(
  '%s in the request line',
  (version) => {
    test('of a message is answered with 400, and nothing is sent upstream', async () => {
      const before = pair.upstream.requests.length;
      expectProblem(await answerTo(message(version)), 400, 'bad_request');
      expect(pair.upstream.requests).toHaveLength(before);
    });

    test('of a probe or preflight is answered with 400', async () => {
      expectProblem(await answerTo(probe(version)), 400, 'bad_request');
      const headers = 'Origin: https://app.example.com\r\nAccess-Control-Request-Method: POST';
      const preflight = `OPTIONS ${BOT_PATH} ${version}\r\nHost: a\r\n${headers}\r\n\r\n`;
      expectProblem(await answerTo(preflight), 400, 'bad_request');
    });
  },
);

describe.each([
  ['RTSP', `DESCRIBE /healthz RTSP/1.0\r\nHost: a\r\n\r\n`],
  ['RTSP with spaces and empty lines', '\r\n\n\rGET   /healthz   RTSP/1.0\r\nHost: a\r\n\r\n'],
  ['ICE', 'SOURCE /healthz ICE/1.0\r\nHost: a\r\n\r\n'],
])('a request of %s', (_name, bytes) => {
  test('is answered with 400', async () => {
    expectProblem(await answerTo(bytes), 400, 'bad_request');
  });

  test('is answered with 400 when it arrives byte by byte', async () => {
    expectProblem(await answerTo(bytes, 1), 400, 'bad_request');
  });

  test('after a request of HTTP is not served', async () => {
    const client = rawClient(pair.relay.port, probe('HTTP/1.1'));
    await client.waitFor('"}');
    client.socket.write(bytes);
    await client.closed;
    expect(client.text().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400']);
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
    expect(client.text().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400']);
  }
});

test('RTSP with more spaces than a line may have is answered with 400', async () => {
  const spaces = ' '.repeat(50_000);
  expectProblem(await answerTo(probe('RTSP/1.0').replace(' ', spaces)), 400, 'bad_request');
  expectProblem(await answerTo(probe('RTSP/1.0').replace(' RTSP', `${spaces}RTSP`)), 400, 'bad_request');
});

test.each([
  ['short lines', `${'A'.repeat(13)}${' '.repeat(1000)}\r\n`],
  ['long lines', `${'A'.repeat(13)}${' '.repeat(16_000)}\r\n`],
  ['half lines', `${'A'.repeat(13)} ${'A'.repeat(1000)} ${' '.repeat(16)}A\r\n`],
  ['lines of RTSP', 'GET a RTSP/'],
])('a body of %s that resemble a request line is read like any other', async (_what, part) => {
  const body = part.repeat(Math.ceil(200_000 / part.length));
  expectProblem(await answerTo(rawMessage({ body })), 401, 'unauthenticated');
});

test('a message whose text contains RTSP is sent', async () => {
  const body = JSON.stringify({ text: `is it\n${probe('RTSP/1.0')}?`, more: 'GET / RTSP/1.0' });
  const client = pair.ask({ body });
  await client.waitFor('data: 1');
  expect(pair.upstream.requests.at(-1)?.body.toString()).toBe(body);
});

describe('two Host headers', () => {
  test.each([
    ['that differ', 'Host: a\r\nHost: b'],
    ['that are the same', 'Host: a\r\nhost: a'],
    ['of which one is empty', 'Host:\r\nHOST: a'],
  ])('%s are answered with 400', async (_name, hosts) => {
    for (const line of [
      'GET /healthz HTTP/1.1',
      'GET /auth/session HTTP/1.0',
      `OPTIONS ${BOT_PATH} HTTP/1.1`,
    ])
      expectProblem(await answerTo(`${line}\r\n${hosts}\r\n\r\n`), 400, 'bad_request');
  });

  test('on a message are answered with 400, and nothing is sent upstream', async () => {
    const before = pair.upstream.requests.length;
    const bytes = rawMessage({ cookie: pair.cookie, headers: ['Host: b'] });
    expectProblem(await answerTo(bytes), 400, 'bad_request');
    expect(pair.upstream.requests).toHaveLength(before);
  });

  test('are not counted by a header whose value is "host"', async () => {
    const answer = await answerTo('GET /healthz HTTP/1.1\r\nHost: a\r\nX-Is: host\r\n\r\n');
    expect(answer.status).toBe(200);
  });
});
