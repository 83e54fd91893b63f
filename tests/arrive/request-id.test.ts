import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { requestIdFrom } from '../../src/arrive/request-head.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay('http://127.0.0.1:9');
});
afterAll(() => relay.close());

describe('a request id', () => {
  test.each(['12345678', 'a'.repeat(128), 'Abc_9.-x'])(
    'of the caller is kept if it is well formed: %s',
    (id) => {
      expect(requestIdFrom(id)).toBe(id);
    },
  );

  test.each([
    ['too short', '1234567'],
    ['too long', 'a'.repeat(129)],
    ['with a space', 'abcd efgh'],
    ['with a line end at its end', 'abcdefgh\n'],
    ['with a quote', 'abcdefgh"'],
    ['that is not ASCII', 'abcdefgé'],
    ['that is empty', ''],
    ['that is missing', undefined],
  ])('%s is replaced', (_why, id) => {
    expect(requestIdFrom(id)).toMatch(UUID);
  });

  test('is on the answer, in the problem and in the log', async () => {
    const answer = await call(relay.port, '/nowhere', { headers: { 'X-Request-Id': 'caller-id-0001' } });
    expect(expectProblem(answer, 404, 'not_found').requestId).toBe('caller-id-0001');
    expect(await relay.logLine(({ requestId }) => requestId === 'caller-id-0001')).toMatchObject({
      status: 404,
    });
  });

  test('that is sent twice is replaced', async () => {
    const client = rawClient(
      relay.port,
      'GET /healthz HTTP/1.1\r\nHost: a\r\nX-Request-Id: first-id-01\r\nX-Request-Id: second-id-02\r\nConnection: close\r\n\r\n',
    );
    await client.closed;
    expect(parseAnswer(client.text()).headers['x-request-id']).toMatch(UUID);
  });

  test('differs for every request', async () => {
    const [first, second] = [await call(relay.port, '/healthz'), await call(relay.port, '/healthz')];
    expect(first.headers['x-request-id']).not.toBe(second.headers['x-request-id']);
  });
});
