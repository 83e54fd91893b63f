import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { wholeStream } from '../support/raw-upstream.ts';

const LINGER_MS = 2000;
const NEXT = 'GET /healthz HTTP/1.1\r\nHost: app.example.com\r\n\r\n';

let pair: Pair;
beforeAll(async () => {
  pair = await startPair(() => {});
});
afterAll(() => pair.close());

const clients: RawClient[] = [];
afterEach(() => {
  for (const { socket } of clients.splice(0)) socket.destroy();
});

/** Sends the head of a message and what is given of its body; resolves once it is refused. */
async function refused(status: number, cookie: string, framing: string, part = '') {
  const head = rawMessage({ cookie, body: '', headers: [framing] }).replace('Content-Length: 0\r\n', '');
  const client = rawClient(pair.relay.port, head + part);
  clients.push(client);
  await client.waitFor('"}');
  expect(client.text()).toMatch(`HTTP/1.1 ${status} `);
  return client;
}

const answers = (client: RawClient) => client.text().match(/HTTP\/1\.1 \d+/g);

describe('a refused request whose body never ends', () => {
  test.each([401, 413])(
    'is read for a moment behind its %i, then the connection closes',
    async (status) => {
      const cookie = status === 413 ? pair.cookie : '';
      const client = await refused(status, cookie, 'Content-Length: 100000000000');
      const answeredAt = performance.now();
      const sending = setInterval(() => client.socket.write(Buffer.alloc(1000)), 50);
      await client.closed;
      clearInterval(sending);
      // Long enough for the client to read the answer, and no longer than that.
      expect(performance.now() - answeredAt).toBeGreaterThan(LINGER_MS / 2);
      expect(performance.now() - answeredAt).toBeLessThan(LINGER_MS * 4);
      expect(answers(client)).toEqual([`HTTP/1.1 ${status}`]);
    },
    15_000,
  );
});

describe('a refused request whose body ends in time', () => {
  test('leaves its connection to the next requests, for good', async () => {
    const client = await refused(401, '', 'Content-Length: 20', '{"text":');
    client.socket.write(`"and so on"}${NEXT}`);
    await client.waitFor('{"status":"ok"}');
    const closed = client.closed.then(() => 'closed');
    const later = new Promise((resolve) => setTimeout(resolve, LINGER_MS * 1.3, 'still open'));
    expect(await Promise.race([closed, later])).toBe('still open');
    client.socket.write(NEXT.replace('GET /healthz', 'GET /readyz'));
    await client.waitFor('"accepting"');
    expect(answers(client)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 200', 'HTTP/1.1 200']);
  });
});

describe('a refused request whose body was read before', () => {
  test('is over at once: the next on its connection is answered', async () => {
    const answeredAt = performance.now();
    const client = rawClient(pair.relay.port, rawMessage({ cookie: pair.cookie, body: 'no JSON' }) + NEXT);
    clients.push(client);
    await client.waitFor('{"status":"ok"}');
    expect(performance.now() - answeredAt).toBeLessThan(LINGER_MS);
    expect(answers(client)).toEqual(['HTTP/1.1 400', 'HTTP/1.1 200']);
  });
});

describe('a refused request whose body breaks off into something else', () => {
  test('gets no second answer behind the first', async () => {
    const client = await refused(401, '', 'Transfer-Encoding: chunked', '8\r\n{"text":\r\n');
    client.socket.write('no size\r\n');
    await client.closed;
    expect(answers(client)).toEqual(['HTTP/1.1 401']);
  });
});

describe('a refusal that closes its connection', () => {
  test.each([['Connection: close'], ['Connection: keep-alive']])(
    'waits for the body that is still coming: %s',
    async (connection) => {
      const client = await refused(401, '', `Content-Length: 40000\r\n${connection}`);
      for (let sent = 0; sent < 4; sent += 1) {
        await new Promise((resolve) => client.socket.write(Buffer.alloc(9000), resolve));
        await new Promise((resolve) => setTimeout(resolve, 20));
        expect(client.socket.destroyed).toBe(false);
      }
      client.socket.end(Buffer.alloc(4000));
      expect(await client.closed).toEqual({ error: undefined });
    },
  );
});

describe('a request behind a stream on the same connection', () => {
  test('that is refused with its body unfinished does not cut the stream', async () => {
    const streaming = await startPair((socket) => socket.write(wholeStream('data: 1\n\n').subarray(0, -5)));
    const client = streaming.ask();
    await client.waitFor('data: 1');
    client.socket.write('POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{');
    const cut = client.closed.then(() => 'cut');
    const later = new Promise((resolve) => setTimeout(resolve, LINGER_MS * 1.3, 'still open'));
    expect(await Promise.race([cut, later])).toBe('still open');
    await streaming.close();
  });
});
