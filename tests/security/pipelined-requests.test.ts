import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
let client: RawClient;
beforeEach(async () => {
  // A run that nobody reads is over at once.
  const environment = { METRICS_PORT: '9090', JOIN_GRACE_MS: '0' };
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), environment);
  client = pair.ask();
  await client.waitFor('\r\n\r\n');
  pair.upstream.sockets[0]?.write(chunk('data: 1\n\n'));
  await client.waitFor('data: 1');
});
afterEach(() => pair.close());

describe('after a running stream on one connection', () => {
  test.each([
    ['text that is not HTTP', 'no HTTP at all\r\n\r\n'],
    [
      'a request with two lengths',
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n',
    ],
    ['a large header', `GET / HTTP/1.1\r\nX-Large: ${'x'.repeat(20_000)}\r\n\r\n`],
    ['CONNECT', 'CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n'],
    [
      'a request with a malformed body',
      'POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    ],
  ])('%s causes no answer in the middle of the stream', async (_what, bytes) => {
    client.socket.write(bytes);
    await client.closed;
    expect(client.text().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200']);
    expect(client.text()).not.toContain('problem+json');
    expect(dechunk(client.text())).toMatchObject({ complete: false });
  });

  test('a valid request is answered after the stream', async () => {
    client.socket.write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.waitFor('{"status":"ok"}');
    expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
    expect(client.text().indexOf('{"status"')).toBeGreaterThan(client.text().indexOf('data: 2'));
  });
});

describe('after a running stream whose request had an unknown Expect header', () => {
  test('text that is not HTTP causes no answer in the middle of the stream', async () => {
    const expecting = pair.ask({ headers: ['Expect: the-best'], body: '{"text":"expects"}' });
    await expecting.waitFor('\r\n\r\n');
    expecting.socket.write('no HTTP at all\r\n\r\n');
    await expecting.closed;
    expect(expecting.text().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200']);
  });
});

describe('on a connection', () => {
  const PROBE = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n';
  const answers = (text: string) => text.match(/HTTP\/1\.1 \d+/g)?.length;
  const cuts = () => pair.relay.logs.filter(({ msg }) => msg === 'too many requests at once on a connection');

  test('one request is served, four wait, and all are answered', async () => {
    const many = rawClient(pair.relay.port, PROBE.repeat(5));
    const last = PROBE.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
    await until(() => answers(many.text()) === 5);
    many.socket.write(PROBE.repeat(4) + last);
    await many.closed;
    expect(answers(many.text())).toBe(10);
    expect(cuts()).toEqual([]);
  });

  test('a sixth request cuts the connection, even during a stream, which is logged and counted', async () => {
    client.socket.write(PROBE.repeat(4));
    // Once a later request is served, these have arrived.
    await call(pair.relay.port, '/healthz');
    expect(client.socket.destroyed).toBe(false);
    client.socket.write(PROBE);
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ complete: false });
    expect(cuts()).toEqual([{ level: 'info', time: expect.any(String), msg: expect.any(String), most: 5 }]);
    expect(total(await pair.relay.metricsText(), 'bot_relay_connections_cut_total')).toBe(1);
    // The message of the stream is released.
    await until(() => pair.upstream.sockets[0]?.destroyed === true);
    expect(pair.relay.open.count()).toBe(0);
  });

  test('requests beyond the limit are dropped and not served', async () => {
    await rawClient(pair.relay.port, PROBE.repeat(2000)).closed;
    await call(pair.relay.port, '/auth/session');
    const lines = pair.relay.logs.filter(({ route }) => route === '/healthz');
    expect(lines.length).toBeLessThanOrEqual(5);
    expect(cuts()).toHaveLength(1);
  });
});

describe('a client that sends CONNECT and resets the connection', () => {
  test('does not end the process', async () => {
    const tunnel = rawClient(pair.relay.port, 'CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n', {
      allowHalfOpen: true,
    });
    await tunnel.waitFor('"}');
    tunnel.socket.resetAndDestroy();
    await tunnel.closed;
    expect(await call(pair.relay.port, '/healthz')).toMatchObject({ status: 200 });
  });
});
