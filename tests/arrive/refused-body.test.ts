import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, wholeStream } from '../harness/service/raw-upstream.ts';

/** For how long the relay reads the rest of a body. */
const READ_REST_MS = 2000;
const NEXT = 'GET /healthz HTTP/1.1\r\nHost: app.example.com\r\n\r\n';

let pair: RelayAndUpstream;
beforeEach(async () => {
  stopClock();
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n').subarray(0, -5)));
});
const clients: RawClient[] = [];
afterEach(async () => {
  for (const { socket } of clients.splice(0)) socket.destroy();
  await pair.close();
});

/** Sends the head of a message and a part of its body; resolves once it is refused. */
async function refused(status: number, cookie: string, framing: string, part = '') {
  const head = rawMessage({ cookie, body: '', headers: [framing] }).replace('Content-Length: 0\r\n', '');
  const client = rawClient(pair.relay.port, head + part);
  clients.push(client);
  await client.waitFor('"}');
  expect(client.text()).toMatch(`HTTP/1.1 ${status} `);
  return client;
}

const answers = (client: RawClient) => client.text().match(/HTTP\/1\.1 \d+/g);

test.each([401, 413])(
  'a refused request whose body never ends is read for a moment after its %i, then the connection is closed',
  async (status) => {
    const cookie = status === 413 ? pair.cookie : '';
    const client = await refused(status, cookie, 'Content-Length: 100000000000');
    // The client needs time to read the answer, but must not send for ever.
    pass(READ_REST_MS - 1);
    client.socket.write(Buffer.alloc(1000));
    await call(pair.relay.port, '/healthz');
    expect(client.socket.destroyed).toBe(false);
    pass(1);
    await client.closed;
    expect(answers(client)).toEqual([`HTTP/1.1 ${status}`]);
  },
);

test('a refused request whose body ends in time leaves its connection open for the next requests', async () => {
  const client = await refused(401, '', 'Content-Length: 20', '{"text":');
  client.socket.write(`"and so on"}${NEXT}`);
  await client.waitFor('{"status":"ok"}');
  pass(READ_REST_MS * 2);
  client.socket.write(NEXT.replace('GET /healthz', 'GET /readyz'));
  await client.waitFor('"accepting"');
  expect(answers(client)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 200', 'HTTP/1.1 200']);
});

test('a pipelined request after a stream does not cut the stream if it is refused before its body is complete', async () => {
  const client = pair.ask();
  await client.waitFor('data: 1');
  client.socket.write('POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{');
  // After this, the relay has read the other request.
  await call(pair.relay.port, '/healthz');
  pass(READ_REST_MS * 2);
  pair.upstream.sockets[0]?.write(chunk('data: 2\n\n'));
  await client.waitFor('data: 2');
});

test('after a refused request whose body was complete, the next one on its connection is answered at once', async () => {
  const client = rawClient(pair.relay.port, rawMessage({ cookie: pair.cookie, body: 'no JSON' }) + NEXT);
  clients.push(client);
  await client.waitFor('{"status":"ok"}');
  expect(answers(client)).toEqual(['HTTP/1.1 400', 'HTTP/1.1 200']);
});

describe('a refused request whose body turns out to be malformed', () => {
  test('gets no second answer after the first', async () => {
    const client = await refused(401, '', 'Transfer-Encoding: chunked', '8\r\n{"text":\r\n');
    client.socket.write('no size\r\n');
    await client.closed;
    expect(answers(client)).toEqual(['HTTP/1.1 401']);
  });
});

describe('a refusal that closes its connection', () => {
  test.each([['Connection: close'], ['Connection: keep-alive']])(
    'waits for the rest of the body with %s',
    async (connection) => {
      const client = await refused(401, '', `Content-Length: 40000\r\n${connection}`);
      for (let sent = 0; sent < 4; sent += 1) {
        await new Promise((resolve) => client.socket.write(Buffer.alloc(9000), resolve));
        expect(client.socket.destroyed).toBe(false);
      }
      client.socket.end(Buffer.alloc(4000));
      expect(await client.closed).toEqual({ error: undefined });
    },
  );
});
