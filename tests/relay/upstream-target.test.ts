import { afterEach, describe, expect, test } from '@jest/globals';
import { plainAnswer } from '../support/pair.ts';
import { type RawUpstream, startRawUpstream } from '../support/raw-upstream.ts';
import { BOT_PATH, startRelay, type TestRelay } from '../support/relay.ts';

let upstream: RawUpstream;
let relay: TestRelay;
afterEach(async () => {
  await relay.close();
  await upstream.close();
});

/** The request line upstream for a message with this query. */
async function lineFor(
  query: string,
  environment: Record<string, string>,
  base = '',
  path = BOT_PATH,
): Promise<string> {
  upstream = await startRawUpstream((socket) => socket.write(plainAnswer('400 No', [])));
  relay = await startRelay(upstream.url + base, environment);
  const response = await relay.send(await relay.signIn(), { path: path + query });
  expect(response.status).toBe(400);
  return upstream.requests[0]?.requestLine ?? '';
}

const QUERY = '?is_debug=true&api_key=evil&IS_DEBUG=evil&x.is_debug=evil&debug=evil&is_debug%20=evil';

describe('of a query', () => {
  test('nothing goes upstream if nothing is named (U5)', async () => {
    expect(await lineFor(QUERY, {})).toBe(`POST ${BOT_PATH} HTTP/1.1`);
  });

  test('nothing goes upstream if nothing that is named is in it (U5)', async () => {
    expect(await lineFor(QUERY, { FORWARD_QUERY: 'other' })).toBe(`POST ${BOT_PATH} HTTP/1.1`);
  });

  test('only what is named goes upstream (U5)', async () => {
    const line = await lineFor(QUERY, { FORWARD_QUERY: 'is_debug,trace' });
    expect(line).toBe(`POST ${BOT_PATH}?is_debug=true HTTP/1.1`);
  });

  test('what is named goes upstream with all its values, which stay values (U5)', async () => {
    const query = '?trace=a%26evil%3D1%23&x=1&is%5Fdebug=&trace=%0d%0aevil:%201&trace=%F0%9F%98%80';
    const line = await lineFor(query, { FORWARD_QUERY: 'is_debug,trace' });
    const [, target = ''] = line.split(' ');
    expect(line).toMatch(/^POST [\x21-\x7e]+ HTTP\/1\.1$/);
    expect([...new URL(target, upstream.url).searchParams]).toEqual([
      ['trace', 'a&evil=1#'],
      ['is_debug', ''],
      ['trace', '\r\nevil: 1'],
      ['trace', '😀'],
    ]);
  });
});

describe('a path', () => {
  const pathOf = (namespace: string, bot: string) =>
    `/generic/ns/${encodeURIComponent(namespace)}/bot-provider/${encodeURIComponent(bot)}/message/sse`;

  test.each(['a?b', 'a#b', 'a;b=c', 'a&is_debug=1&b', 'a b+c', '@:,$'])(
    'stays one where a name in it is %j, and is no query (U4, U5)',
    async (name) => {
      const environment = { FORWARD_QUERY: 'is_debug', BOTS: '*/*' };
      const path = pathOf(name, name);
      expect(await lineFor('', environment, '', path)).toBe(`POST ${path} HTTP/1.1`);
    },
  );
});

test('what looks like a query in a path is none (U5)', async () => {
  const path = '/generic/ns/a&is_debug=1&b/bot-provider/helper/message/sse';
  const line = await lineFor('', { FORWARD_QUERY: 'is_debug', BOTS: '*/*' }, '', path);
  expect(line).toBe(`POST ${path.replace('a&is_debug=1&b', encodeURIComponent('a&is_debug=1&b'))} HTTP/1.1`);
});

test.each(['/v1', '/v1/', '/v1//'])('the path of the base URL %s stays in front (U5)', async (base) => {
  expect(await lineFor('', {}, base)).toBe(`POST /v1${BOT_PATH} HTTP/1.1`);
});
