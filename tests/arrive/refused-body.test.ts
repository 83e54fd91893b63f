import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const READ_REST_MS = 2000;
const NEXT = 'GET /healthz HTTP/1.1\r\nHost: app.example.com\r\n\r\n';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream(() => {});
});
afterAll(() => pair.close());

const clients: RawClient[] = [];
afterAll(() => {
  for (const { socket } of clients.splice(0)) socket.destroy();
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

// Each of these waits as long as the relay reads the rest of a body.
testSideBySide([
  ...[401, 413].map(
    (status) =>
      [
        `a refused request whose body never ends is read for a moment after its ${status}, then the connection is closed`,
        () => expectEndlessBodyCutOff(status),
      ] as const,
  ),
  [
    'a refused request whose body ends in time leaves its connection open for the next requests',
    async () => {
      const client = await refused(401, '', 'Content-Length: 20', '{"text":');
      client.socket.write(`"and so on"}${NEXT}`);
      await client.waitFor('{"status":"ok"}');
      const closed = client.closed.then(() => 'closed');
      const later = new Promise((resolve) => setTimeout(resolve, READ_REST_MS * 1.3, 'still open'));
      expect(await Promise.race([closed, later])).toBe('still open');
      client.socket.write(NEXT.replace('GET /healthz', 'GET /readyz'));
      await client.waitFor('"accepting"');
      expect(answers(client)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 200', 'HTTP/1.1 200']);
    },
  ],
  [
    'a pipelined request after a stream does not cut the stream if it is refused before its body is complete',
    async () => {
      const streaming = await startRelayAndUpstream((socket) =>
        socket.write(wholeStream('data: 1\n\n').subarray(0, -5)),
      );
      const client = streaming.ask();
      await client.waitFor('data: 1');
      client.socket.write('POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{');
      const cut = client.closed.then(() => 'cut');
      const later = new Promise((resolve) => setTimeout(resolve, READ_REST_MS * 1.3, 'still open'));
      expect(await Promise.race([cut, later])).toBe('still open');
      await streaming.close();
    },
  ],
]);

async function expectEndlessBodyCutOff(status: number) {
  const cookie = status === 413 ? pair.cookie : '';
  const client = await refused(status, cookie, 'Content-Length: 100000000000');
  const answeredAt = performance.now();
  const awakeMs = countAwakeMs();
  const sending = setInterval(() => client.socket.write(Buffer.alloc(1000)), 50);
  await client.closed;
  clearInterval(sending);
  // The client needs time to read the answer, but must not send for ever.
  expect(performance.now() - answeredAt).toBeGreaterThan(READ_REST_MS / 2);
  expect(awakeMs()).toBeLessThan(READ_REST_MS * 4);
  expect(answers(client)).toEqual([`HTTP/1.1 ${status}`]);
}

describe('a refused request whose body was complete', () => {
  test('ends at once, and the next request on its connection is answered', async () => {
    const awakeMs = countAwakeMs();
    const client = rawClient(pair.relay.port, rawMessage({ cookie: pair.cookie, body: 'no JSON' }) + NEXT);
    clients.push(client);
    await client.waitFor('{"status":"ok"}');
    expect(awakeMs()).toBeLessThan(READ_REST_MS);
    expect(answers(client)).toEqual(['HTTP/1.1 400', 'HTTP/1.1 200']);
  });
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
    (connection) =>
      whileAwake(async () => {
        const client = await refused(401, '', `Content-Length: 40000\r\n${connection}`);
        for (let sent = 0; sent < 4; sent += 1) {
          await new Promise((resolve) => client.socket.write(Buffer.alloc(9000), resolve));
          await sleep(20);
          expect(client.socket.destroyed).toBe(false);
        }
        client.socket.end(Buffer.alloc(4000));
        expect(await client.closed).toEqual({ error: undefined });
      })(),
  );
});
