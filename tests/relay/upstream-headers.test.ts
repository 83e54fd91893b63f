import { afterEach, describe, expect, test } from '@jest/globals';
import { CANARY } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { LAST_CHUNK, type RawRequest, wholeStream } from '../harness/service/raw-upstream.ts';

/** All headers that go upstream if the client sends none that are passed on. */
const OWN_HEADERS = [
  ...['accept', 'accept-encoding', 'connection', 'content-length', 'content-type', 'host'],
  ...['x-api-key', 'x-request-id'],
];

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** The request that arrives upstream when a client sends these headers, and the client's `answer`. */
async function sentWith(
  headers: readonly string[],
  environment: Record<string, string> = {},
): Promise<RawRequest & { answer: string }> {
  pair = await startRelayAndUpstream((socket) => {
    socket.write(wholeStream('data: a\n\n'));
  }, environment);
  const client = pair.ask({ headers: [...headers] });
  await client.waitFor(LAST_CHUNK);
  expect(pair.upstream.requests).toHaveLength(1);
  return { ...(pair.upstream.requests[0] as RawRequest), answer: client.text() };
}

function expectOwnHeadersOnly({ headers, all }: RawRequest): void {
  expect(headers.map(([name]) => name.toLowerCase()).sort()).toEqual(OWN_HEADERS);
  expect(all('x-api-key')).toEqual([CANARY.key]);
  expect(all('connection')).toEqual(['keep-alive']);
  expect(all('content-type')).toEqual(['application/json']);
  expect(JSON.stringify(headers)).not.toContain('evil');
}

describe('of the headers of a client,', () => {
  test('no credentials, keys or headers of proxies go upstream', async () => {
    const request = await sentWith([
      ...['Authorization: Bearer evil', 'Proxy-Authorization: Basic evil', 'Cookie2: evil'],
      ...['X-API-KEY: evil-1', 'x-Api-Key: evil-2', 'X_API_KEY: evil-3', 'X-Api_Key: evil-4'],
      ...['X-Forwarded-For: 6.6.6.6', 'X-Forwarded-Host: evil.example', 'X-Forwarded-Proto: https'],
      ...['X-Forwarded-Port: 666', 'Forwarded: for=evil', 'X-Real-IP: 6.6.6.6', 'Via: 1.1 evil'],
      ...['Upgrade: evil', 'HTTP2-Settings: evil', 'Connection: upgrade', 'Keep-Alive: timeout=666'],
      ...['TE: trailers', 'Trailer: evil', 'Origin: http://app.example.com', 'Referer: http://evil.example'],
      ...['X-Asgard-User: evil', 'User-Agent: evil', 'Accept-Language: evil', 'X-HTTP-Method-Override: evil'],
      ...['Accept-Encoding: evil', 'X-Request-Id: evil!', 'Content-Language: evil'],
      ...['X-ASGARD-USER-IDENTITY-HINT: evil', 'x-asgard-user-identity-hint: evil', 'Idempotency-Key: evil'],
    ]);
    expectOwnHeadersOnly(request);
    expect(request.all('host')).toEqual([new URL(pair.upstream.url).host]);
  });

  test('Expect: 100-continue does not change the upstream request', async () => {
    const request = await sentWith(['Expect: 100-continue', 'X-API-KEY: evil']);
    expectOwnHeadersOnly(request);
    expect(request.answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n/);
  });

  test('an unknown Expect does not change the upstream request', async () => {
    expectOwnHeadersOnly(await sentWith(['Expect: evil', 'X-API-KEY: evil']));
  });

  test('x-api-key in Connection does not remove the key', async () => {
    expectOwnHeadersOnly(await sentWith(['Connection: x-api-key, close, content-type', 'X-API-KEY: evil']));
  });

  test('those that the bot service needs go upstream unchanged', async () => {
    const { all } = await sentWith([
      ...['Accept: text/event-stream, */*;q=0.1', 'Last-Event-ID: 7-b', 'X-Request-Id: request-0001'],
      'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    ]);
    expect(all('accept')).toEqual(['text/event-stream, */*;q=0.1']);
    expect(all('last-event-id')).toEqual(['7-b']);
    expect(all('x-request-id')).toEqual(['request-0001']);
    expect(all('traceparent')).toEqual(['00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01']);
  });

  test.each(['Last-Event-ID:', 'Last-Event-ID: \t '])(
    'an empty one (%j) does not go upstream',
    async (header) => {
      const { all } = await sentWith([header, 'Accept:']);
      expect(all('last-event-id')).toEqual([]);
      expect(all('accept')).toEqual(['text/event-stream']);
    },
  );

  test('none can set USER_HEADER, which goes upstream with the user of the session', async () => {
    const { all } = await sentWith(['X-User-Id: evil'], { USER_HEADER: 'X-User-Id' });
    expect(all('x-user-id')).toEqual(['ada']);
  });
});
