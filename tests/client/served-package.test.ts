import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { TARBALL } from '../harness/clients/consumer.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

const PATH = '/client/bot-relay-client.tgz';
const NOWHERE = 'http://127.0.0.1:9';
const bytes = readFileSync(TARBALL);

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay(NOWHERE);
});
afterAll(() => relay.close());

let other: TestRelay | undefined;
afterEach(async () => {
  await other?.close();
  other = undefined;
});

describe('GET /client/bot-relay-client.tgz', () => {
  test('answers with the package of the build, without a session', async () => {
    const response = await fetch(relay.url + PATH);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'application/gzip',
      'content-length': String(bytes.length),
      'cache-control': 'no-cache',
      'x-content-type-options': 'nosniff',
    });
    expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
  });

  test('answers HEAD without a body, and refuses other methods', async () => {
    const head = await call(relay.port, PATH, { method: 'HEAD' });
    expect(head).toMatchObject({ status: 200, body: '' });
    expect(head.headers['content-length']).toBe(String(bytes.length));
    const posted = await call(relay.port, PATH, { method: 'POST' });
    expectProblem(posted, 405, 'method_not_allowed');
    expect(posted.headers.allow).toBe('GET, HEAD');
  });

  test('answers 304 if the cache has this package, and 200 if it has another one', async () => {
    const { headers } = await call(relay.port, PATH);
    const etag = String(headers.etag);
    expect(etag).toMatch(/^"[\w-]{43}"$/);
    const again = (cached: string) => call(relay.port, PATH, { headers: { 'If-None-Match': cached } });
    expect(await again(etag)).toMatchObject({ status: 304, body: '', headers: { etag } });
    expect(await again('"another"')).toMatchObject({ status: 200 });
  });

  test('is below BASE_PATH', async () => {
    other = await startRelay(NOWHERE, { BASE_PATH: '/chat-api' });
    expect(await call(other.port, `/chat-api${PATH}`, { method: 'HEAD' })).toMatchObject({ status: 200 });
    expectProblem(await call(other.port, PATH), 404, 'not_found');
  });

  test('counts for the limit of the address', async () => {
    other = await startRelay(NOWHERE, { CLIENT_LIMIT_PER_ADDRESS: '1' });
    expect(await call(other.port, PATH, { method: 'HEAD' })).toMatchObject({ status: 200 });
    expectProblem(await call(other.port, PATH), 429, 'too_many_attempts');
  });
});
