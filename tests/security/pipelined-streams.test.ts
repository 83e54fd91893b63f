import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { type Pair, startPair, until } from '../support/pair.ts';
import { rawMessage } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../support/raw-upstream.ts';

let pair: Pair;
afterEach(() => pair.close());

describe('a message behind another on one connection', () => {
  test('is sent when its turn has come, and can then be cut like any other (S11)', async () => {
    pair = await startPair((socket, { body }) => {
      socket.write(STREAM_HEAD);
      if (String(body).includes('second')) socket.end('ff\r\ndata: half');
      else socket.write(chunk('data: first\n\n'));
    });
    const client = pair.ask();
    await client.waitFor('data: first');
    client.socket.write(rawMessage({ cookie: pair.cookie, body: '{"text":"second"}' }));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(pair.upstream.requests).toHaveLength(1);
    pair.upstream.sockets[0]?.write(LAST_CHUNK);
    await client.closed;
    expect(pair.upstream.requests).toHaveLength(2);
    // The first answer came whole, and of the second no end.
    expect(client.text()).toContain('data: half');
    expect(client.text().split(LAST_CHUNK)).toHaveLength(2);
    await until(() => pair.relay.open.count() === 0);
  });

  test('is not sent if its client leaves before its turn has come (S14)', async () => {
    pair = await startPair((socket) => socket.write(STREAM_HEAD));
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    client.socket.write(rawMessage({ cookie: pair.cookie, body: '{"text":"second"}' }));
    // Once a later request is served, this one has arrived.
    await call(pair.relay.port, '/healthz');
    client.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    await call(pair.relay.port, '/healthz');
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.open.count()).toBe(0);
  });

  test('is not sent if the end of the first answer is the end of the connection', async () => {
    pair = await startPair((socket) => socket.write(wholeStream('data: 1\n\n')));
    const headers = ['Connection: keep-alive'];
    const client = pair.ask({ version: '1.0', headers });
    client.socket.write(rawMessage({ cookie: pair.cookie, version: '1.0', headers }));
    await client.closed;
    await call(pair.relay.port, '/healthz');
    expect(client.text()).toContain('data: 1');
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.open.count()).toBe(0);
  });

  test('is cut if its body is more than is kept, so that a client that leaves is seen', async () => {
    pair = await startPair((socket) => socket.write(STREAM_HEAD));
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    const body = JSON.stringify('x'.repeat(100_000));
    client.socket.write(rawMessage({ cookie: pair.cookie, body }));
    await client.closed;
    await until(() => pair.upstream.sockets[0]?.destroyed === true);
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.logs.map(({ msg }) => msg)).toContain('too many requests at once on a connection');
  });

  test('may have a large body if nobody has to wait', async () => {
    pair = await startPair((socket) => socket.write(wholeStream('data: 1\n\n')));
    const body = JSON.stringify('x'.repeat(500_000));
    const client = pair.ask({ body });
    for (let count = 2; count <= 5; count += 1) {
      await until(() => client.text().split(LAST_CHUNK).length === count);
      client.socket.write(rawMessage({ cookie: pair.cookie, body }));
    }
    await until(() => client.text().split(LAST_CHUNK).length === 6);
    expect(pair.upstream.requests.map((request) => request.body.length)).toEqual(Array(5).fill(body.length));
  });
});
