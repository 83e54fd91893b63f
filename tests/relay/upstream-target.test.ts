import { afterAll, describe, expect, test } from '@jest/globals';
import { failureOf } from '../harness/clients/error-event.ts';
import { BOT_PATH, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

interface Started {
  readonly upstream: RawUpstream;
  readonly relay: TestRelay;
  readonly cookie: string;
}
/** One relay for each environment and base URL. */
const started = new Map<string, Promise<Started>>();
afterAll(async () => {
  for (const one of started.values()) {
    const { relay, upstream } = await one;
    await relay.close();
    await upstream.close();
  }
});

async function start(environment: Record<string, string>, base: string): Promise<Started> {
  const upstream = await startRawUpstream((socket) => socket.write(plainAnswer('400 No', [])));
  const relay = await startRelay(upstream.url + base, environment);
  return { upstream, relay, cookie: await relay.signIn() };
}

/** The upstream request line of a message with this query. */
async function lineFor(
  query: string,
  environment: Record<string, string>,
  base = '',
  path = BOT_PATH,
): Promise<string> {
  const name = JSON.stringify([environment, base]);
  const one = started.get(name) ?? start(environment, base);
  started.set(name, one);
  const { upstream, relay, cookie } = await one;
  upstream.requests.length = 0;
  const response = await relay.send(cookie, { path: path + query });
  expect(await failureOf(response)).toMatchObject({ status: 400, code: 'upstream_refused' });
  expect(upstream.requests).toHaveLength(1);
  return upstream.requests[0]?.requestLine ?? '';
}

const QUERY = '?is_debug=true&api_key=evil&IS_DEBUG=evil&x.is_debug=evil&debug=evil&is_debug%20=evil';

describe('of the query of a message,', () => {
  test('nothing goes upstream without FORWARD_QUERY', async () => {
    expect(await lineFor(QUERY, {})).toBe(`POST ${BOT_PATH} HTTP/1.1`);
  });

  test('nothing goes upstream if it has none of the names in FORWARD_QUERY', async () => {
    expect(await lineFor(QUERY, { FORWARD_QUERY: 'other' })).toBe(`POST ${BOT_PATH} HTTP/1.1`);
  });

  test('only the names in FORWARD_QUERY go upstream', async () => {
    const line = await lineFor(QUERY, { FORWARD_QUERY: 'is_debug,trace' });
    expect(line).toBe(`POST ${BOT_PATH}?is_debug=true HTTP/1.1`);
  });

  test('a name in FORWARD_QUERY goes upstream with all its values, which are encoded', async () => {
    const query = '?trace=a%26evil%3D1%23&x=1&is%5Fdebug=&trace=%0d%0aevil:%201&trace=%F0%9F%98%80';
    const line = await lineFor(query, { FORWARD_QUERY: 'is_debug,trace' });
    const [, target = ''] = line.split(' ');
    expect(line).toMatch(/^POST [\x21-\x7e]+ HTTP\/1\.1$/);
    expect([...new URL(target, 'http://service').searchParams]).toEqual([
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
    'stays the same, without a query, if a name in it is %j',
    async (name) => {
      const environment = { FORWARD_QUERY: 'is_debug', BOTS: '*/*' };
      const path = pathOf(name, name);
      expect(await lineFor('', environment, '', path)).toBe(`POST ${path} HTTP/1.1`);
    },
  );
});

test('a path with text like a query goes upstream without a query', async () => {
  const path = '/generic/ns/a&is_debug=1&b/bot-provider/helper/message/sse';
  const line = await lineFor('', { FORWARD_QUERY: 'is_debug', BOTS: '*/*' }, '', path);
  expect(line).toBe(`POST ${path.replace('a&is_debug=1&b', encodeURIComponent('a&is_debug=1&b'))} HTTP/1.1`);
});

test.each(['/v1', '/v1/', '/v1//'])('the path of the base URL %s comes first', async (base) => {
  expect(await lineFor('', {}, base)).toBe(`POST /v1${BOT_PATH} HTTP/1.1`);
});
