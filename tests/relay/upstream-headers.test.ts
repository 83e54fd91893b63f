import { afterEach, describe, expect, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { LAST_CHUNK, type RawRequest, wholeStream } from '../support/raw-upstream.ts';
import { CANARY } from '../support/relay.ts';

/** All that ever goes upstream when the client sends none of the headers that are passed on. */
const OWN_HEADERS = [
  ...['accept', 'accept-encoding', 'connection', 'content-length', 'content-type', 'host'],
  ...['x-api-key', 'x-request-id'],
];

let pair: Pair;
afterEach(() => pair.close());

/** The request that arrives upstream when a client sends these headers; `answer` is what the client got. */
async function sentWith(
  headers: readonly string[],
  environment: Record<string, string> = {},
): Promise<RawRequest & { answer: string }> {
  pair = await startPair((socket) => {
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

describe('of what a client sends', () => {
  test('no credential, key or word of a proxy goes upstream (U1)', async () => {
    const request = await sentWith([
      ...['Authorization: Bearer evil', 'Proxy-Authorization: Basic evil', 'Cookie2: evil'],
      ...['X-API-KEY: evil-1', 'x-Api-Key: evil-2', 'X_API_KEY: evil-3', 'X-Api_Key: evil-4'],
      ...['X-Forwarded-For: 6.6.6.6', 'X-Forwarded-Host: evil.example', 'X-Forwarded-Proto: https'],
      ...['X-Forwarded-Port: 666', 'Forwarded: for=evil', 'X-Real-IP: 6.6.6.6', 'Via: 1.1 evil'],
      ...['Upgrade: evil', 'HTTP2-Settings: evil', 'Connection: upgrade', 'Keep-Alive: timeout=666'],
      ...['TE: trailers', 'Trailer: evil', 'Origin: http://app.example.com', 'Referer: http://evil.example'],
      ...['X-Asgard-User: evil', 'User-Agent: evil', 'Accept-Language: evil', 'X-HTTP-Method-Override: evil'],
      ...['Accept-Encoding: evil', 'X-Request-Id: evil!', 'Content-Language: evil'],
    ]);
    expectOwnHeadersOnly(request);
    expect(request.all('host')).toEqual([new URL(pair.upstream.url).host]);
  });

  test('an expectation changes nothing (U2)', async () => {
    const request = await sentWith(['Expect: 100-continue', 'X-API-KEY: evil']);
    expectOwnHeadersOnly(request);
    expect(request.answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n/);
  });

  test('an expectation that nobody knows changes nothing (U2)', async () => {
    expectOwnHeadersOnly(await sentWith(['Expect: evil', 'X-API-KEY: evil']));
  });

  test('the name of the key in Connection does not take the key away (U3)', async () => {
    expectOwnHeadersOnly(await sentWith(['Connection: x-api-key, close, content-type', 'X-API-KEY: evil']));
  });

  test('what the bot service needs goes upstream as it is (U1)', async () => {
    const { all } = await sentWith([
      ...['Accept: text/event-stream, */*;q=0.1', 'Last-Event-ID: 7-b', 'X-Request-Id: request-0001'],
      'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    ]);
    expect(all('accept')).toEqual(['text/event-stream, */*;q=0.1']);
    expect(all('last-event-id')).toEqual(['7-b']);
    expect(all('x-request-id')).toEqual(['request-0001']);
    expect(all('traceparent')).toEqual(['00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01']);
  });

  test('whose message it is goes upstream in USER_HEADER, by the session and by nothing else', async () => {
    const { all } = await sentWith(['X-User-Id: evil'], { USER_HEADER: 'X-User-Id' });
    expect(all('x-user-id')).toEqual(['ada']);
  });
});
