import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { rawMessage } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

describe('a message that is pipelined after another one', () => {
  test('is sent after the first answer, and its own answer can break like any other', async () => {
    pair = await startRelayAndUpstream((socket, { body }) => {
      socket.write(STREAM_HEAD);
      if (String(body).includes('second')) socket.end('ff\r\ndata: half');
      else socket.write(chunk('data: first\n\n'));
    });
    const client = pair.ask();
    await client.waitFor('data: first');
    client.socket.write(rawMessage({ cookie: pair.cookie, body: '{"text":"second"}' }));
    // Once a later request is served, this one has arrived.
    await call(pair.relay.port, '/healthz');
    expect(pair.upstream.requests).toHaveLength(1);
    pair.upstream.sockets[0]?.write(LAST_CHUNK);
    await client.waitFor('upstream_stream_broken');
    await until(() => client.text().endsWith(LAST_CHUNK));
    expect(pair.upstream.requests).toHaveLength(2);
    // Both end in order; the second one says that it is not complete, and half an event is dropped.
    expect(client.text().split(LAST_CHUNK)).toHaveLength(3);
    expect(client.text()).not.toContain('data: half');
    await until(() => pair.relay.open.count() === 0);
  });

  test('is not sent if its client leaves during the first answer', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    client.socket.write(rawMessage({ cookie: pair.cookie, body: '{"text":"second"}' }));
    await call(pair.relay.port, '/healthz');
    client.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    await call(pair.relay.port, '/healthz');
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.open.count()).toBe(0);
  });

  test('is not sent if the first answer ends with the connection', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
    const headers = ['Connection: keep-alive'];
    const client = pair.ask({ version: '1.0', headers });
    client.socket.write(rawMessage({ cookie: pair.cookie, version: '1.0', headers }));
    await client.closed;
    await call(pair.relay.port, '/healthz');
    expect(client.text()).toContain('data: 1');
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.open.count()).toBe(0);
  });

  test('cuts the connection if its body is too large to be buffered, so that a leaving client is noticed', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    const body = JSON.stringify('x'.repeat(100_000));
    client.socket.write(rawMessage({ cookie: pair.cookie, body }));
    await client.closed;
    await until(() => pair.upstream.sockets[0]?.destroyed === true);
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.logs.map(({ msg }) => msg)).toContain('too many requests at once on a connection');
  });

  test('may have a large body if the first answer is complete', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
    const body = JSON.stringify({ text: 'x'.repeat(200_000) });
    const client = pair.ask({ body });
    for (let count = 2; count <= 5; count += 1) {
      await until(() => client.text().split(LAST_CHUNK).length === count);
      client.socket.write(rawMessage({ cookie: pair.cookie, body }));
    }
    await until(() => client.text().split(LAST_CHUNK).length === 6);
    expect(pair.upstream.requests.map((request) => request.body.length)).toEqual(Array(5).fill(body.length));
  });
});
