import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const PROBE = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n';
const END = Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]);

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Starts a relay whose service answers so; a run that nobody reads is over at once. */
const start = async (onRequest: Parameters<typeof startRelayAndUpstream>[0]) => {
  pair = await startRelayAndUpstream(onRequest, { METRICS_PORT: '9090', JOIN_GRACE_MS: '0' });
};
/** A client whose stream runs. */
async function openStream(): Promise<RawClient> {
  await start((socket) => socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])));
  const client = pair.ask();
  await client.waitFor('data: 1');
  return client;
}
/** Once a later request is served, what was sent before it has arrived. */
const arrived = () => call(pair.relay.port, '/healthz');
const statuses = (text: string) => text.match(/HTTP\/1\.1 \d+/g);
const second = () => rawMessage({ cookie: pair.cookie, body: '{"text":"second"}' });
const cuts = () => pair.relay.logs.filter(({ msg }) => msg === 'too many requests at once on a connection');

describe('behind a running stream on one connection', () => {
  test.each([
    ['text that is not HTTP', 'no HTTP at all\r\n\r\n'],
    ['two lengths', 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n'],
    ['a large header', `GET / HTTP/1.1\r\nX-Large: ${'x'.repeat(20_000)}\r\n\r\n`],
    ['CONNECT', 'CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n'],
    [
      'a malformed body',
      'POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    ],
  ])('%s causes no answer in the middle of the stream', async (_what, bytes) => {
    const client = await openStream();
    client.socket.write(bytes);
    await client.closed;
    expect(statuses(client.text())).toEqual(['HTTP/1.1 200']);
    expect(client.text()).not.toContain('problem+json');
    expect(dechunk(client.text())).toMatchObject({ complete: false });
  });

  test('whose request had an unknown Expect header, text that is not HTTP causes no answer either', async () => {
    await start((socket) => socket.write(STREAM_HEAD));
    const client = pair.ask({ headers: ['Expect: the-best'] });
    await client.waitFor('\r\n\r\n');
    client.socket.write('no HTTP at all\r\n\r\n');
    await client.closed;
    expect(statuses(client.text())).toEqual(['HTTP/1.1 200']);
  });

  test('a valid request is answered after the stream', async () => {
    const client = await openStream();
    client.socket.write(PROBE);
    pair.upstream.sockets[0]?.write(END);
    await client.waitFor('{"status":"ok"}');
    expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
    expect(client.text().indexOf('{"status"')).toBeGreaterThan(client.text().indexOf('data: 2'));
  });

  test('a message is sent after the stream, and its own answer can break like any other', async () => {
    await start((socket, { body }) => {
      socket.write(STREAM_HEAD);
      if (String(body).includes('second')) socket.end('ff\r\ndata: half');
      else socket.write(chunk('data: first\n\n'));
    });
    const client = pair.ask();
    await client.waitFor('data: first');
    client.socket.write(second());
    await arrived();
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

  test('a message is not sent if its client leaves meanwhile', async () => {
    const client = await openStream();
    client.socket.write(second());
    await arrived();
    client.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    await arrived();
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.open.count()).toBe(0);
  });

  test('a message is not sent if the stream ends with the connection', async () => {
    await start((socket) => socket.write(wholeStream('data: 1\n\n')));
    const headers = ['Connection: keep-alive'];
    const client = pair.ask({ version: '1.0', headers });
    client.socket.write(rawMessage({ cookie: pair.cookie, version: '1.0', headers }));
    await client.closed;
    await arrived();
    expect(client.text()).toContain('data: 1');
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.open.count()).toBe(0);
  });

  test.each([
    [
      'a body that is too large to be buffered',
      () => rawMessage({ cookie: pair.cookie, body: JSON.stringify('x'.repeat(100_000)) }),
    ],
    ['a fifth request that waits', () => PROBE],
  ])('%s cuts the connection, which is logged and counted, and ends the message', async (_what, bytes) => {
    const client = await openStream();
    client.socket.write(PROBE.repeat(4));
    await arrived();
    expect(client.socket.destroyed).toBe(false);
    client.socket.write(bytes());
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ complete: false });
    expect(cuts()).toEqual([{ level: 'info', time: expect.any(String), msg: expect.any(String), most: 5 }]);
    expect(total(await pair.relay.metricsText(), 'bot_relay_connections_cut_total')).toBe(1);
    await until(() => pair.upstream.sockets[0]?.destroyed === true);
    expect([pair.upstream.requests.length, pair.relay.open.count()]).toEqual([1, 0]);
  });
});

describe('on a connection', () => {
  test('one request is served, four wait, and all are answered', async () => {
    await start(() => {});
    const many = rawClient(pair.relay.port, PROBE.repeat(5));
    await until(() => statuses(many.text())?.length === 5);
    many.socket.write(PROBE.repeat(4) + PROBE.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
    await many.closed;
    expect(statuses(many.text())).toHaveLength(10);
    expect(cuts()).toEqual([]);
  });

  test('requests beyond the limit are dropped and not served', async () => {
    await start(() => {});
    await rawClient(pair.relay.port, PROBE.repeat(2000)).closed;
    await call(pair.relay.port, '/auth/session');
    expect(pair.relay.logs.filter(({ route }) => route === '/healthz').length).toBeLessThanOrEqual(5);
    expect(cuts()).toHaveLength(1);
  });

  test('each message may have a large body once the answer before it is complete', async () => {
    await start((socket) => socket.write(wholeStream('data: 1\n\n')));
    const body = JSON.stringify({ text: 'x'.repeat(200_000) });
    const client = pair.ask({ body });
    for (let count = 2; count <= 5; count += 1) {
      await until(() => client.text().split(LAST_CHUNK).length === count);
      client.socket.write(rawMessage({ cookie: pair.cookie, body }));
    }
    await until(() => client.text().split(LAST_CHUNK).length === 6);
    expect(pair.upstream.requests.map((request) => request.body.length)).toEqual(Array(5).fill(body.length));
  });

  test('a client that sends CONNECT and resets it does not end the process', async () => {
    await start(() => {});
    const bytes = 'CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n';
    const tunnel = rawClient(pair.relay.port, bytes, { allowHalfOpen: true });
    await tunnel.waitFor('"}');
    tunnel.socket.resetAndDestroy();
    await tunnel.closed;
    expect(await arrived()).toMatchObject({ status: 200 });
  });
});
