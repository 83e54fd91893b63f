import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Answer, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { BOT_PATH, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

const BODY = '{"text":"hi"}';
const TYPE = 'Content-Type: application/json';
const LENGTH = `Content-Length: ${BODY.length}`;
const path = (namespace: string, bot = 'helper') =>
  `/generic/ns/${namespace}/bot-provider/${bot}/message/sse`;

/** A request, sent with the session's cookie, and the expected answer. */
interface Hostile {
  readonly line: string;
  readonly headers?: readonly string[];
  readonly code: Parameters<typeof expectProblem>[2];
  readonly status: number;
}

const target = (requestTarget: string, status: number, code: Hostile['code'], method = 'POST'): Hostile => ({
  line: `${method} ${requestTarget} HTTP/1.1`,
  status,
  code,
});
const unknownBot = (requestTarget: string) => target(requestTarget, 404, 'unknown_bot');
const notFound = (requestTarget: string) => target(requestTarget, 404, 'not_found');
const notHttp = (requestTarget: string) => target(requestTarget, 400, 'bad_request');
const otherMethod = (method: string) => target(BOT_PATH, 405, 'method_not_allowed', method);
const malformed = (...headers: string[]): Hostile => ({
  line: `POST ${BOT_PATH} HTTP/1.1`,
  headers,
  status: 400,
  code: 'bad_request',
});

const TARGETS: Record<string, Hostile> = {
  'a .. for the namespace': unknownBot(path('..')),
  'a . for the bot': unknownBot(path('acme', '.')),
  'an escaped ..': unknownBot(path('%2e%2e')),
  'an escaped .. in capitals': unknownBot(path('acme', '%2E%2E')),
  'a .. before an escaped slash': unknownBot(path('..%2f..')),
  'an escaped slash in a name': unknownBot(path('acme', 'helper%2fmessage')),
  'a twice escaped ..': unknownBot(path('%252e%252e')),
  'an escaped percent': unknownBot(path('acme', 'helper%25')),
  'an escaped NUL': unknownBot(path('acme', 'helper%00')),
  'an escaped line end': unknownBot(path('acme', 'helper%0d%0aX-Evil:1')),
  'an escaped backslash': unknownBot(path('..%5c..')),
  'a .. between segments': notFound(`/generic/../generic/ns/acme/bot-provider/helper/message/sse`),
  'a .. that resolves to the path of a message': notFound(`/x/..${BOT_PATH}`),
  'a .. at the end': notFound(`${BOT_PATH}/..`),
  'two slashes before': notFound(`/${BOT_PATH}`),
  'two slashes within': notFound(BOT_PATH.replace('/ns/', '//ns/')),
  'an empty namespace': notFound(path('')),
  'another case': notFound(BOT_PATH.toUpperCase()),
  'another case of one letter': notFound(BOT_PATH.replace('sse', 'SSE')),
  'a slash at the end': notFound(`${BOT_PATH}/`),
  'an escaped slash at the end': notFound(`${BOT_PATH}%2f`),
  'a sub-path': notFound(`${BOT_PATH}/more`),
  'an escaped letter of the route': notFound(BOT_PATH.replace('generic', 'g%65neric')),
  'a broken escape': notFound(path('acme', 'helper%zz')),
  'a cut escape': notFound(path('acme', 'helper%')),
  'an escape that is no UTF-8': notFound(path('acme', '%c3%28')),
  'a backslash': notHttp(path('acme\\..')),
  'a backslash for each slash': notHttp(BOT_PATH.replaceAll('/', '\\')),
  'a NUL': notHttp(path('acme', 'helper\0')),
  'a space': notHttp(path('acme', 'hel per')),
  'a tab': notHttp(path('acme', 'hel\tper')),
  'a byte that is not ASCII': notHttp(path('acme', 'h\xe9lper')),
  'a fragment': notHttp(`${BOT_PATH}#x`),
  'a fragment after a query': notHttp(`${BOT_PATH}?a=b#x`),
  'absolute-form': notHttp(`http://app.example.com${BOT_PATH}`),
  'absolute-form of another host': notHttp(`http://169.254.169.254${BOT_PATH}`),
  'absolute-form without a host': notHttp(`file://${BOT_PATH}`),
  'no slash at the beginning': notHttp(BOT_PATH.slice(1)),
  'an asterisk': notHttp('*'),
  'an asterisk with OPTIONS': target('*', 400, 'bad_request', 'OPTIONS'),
  'authority-form': target('169.254.169.254:80', 400, 'bad_request', 'CONNECT'),
  'authority-form with POST': notHttp('169.254.169.254:80'),
  'a path with CONNECT': target(BOT_PATH, 400, 'bad_request', 'CONNECT'),
  ...Object.fromEntries(
    ['PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND'].map((method) => [method, otherMethod(method)]),
  ),
  'a method in lower case': target(BOT_PATH, 400, 'bad_request', 'post'),
  'an unknown method': target(BOT_PATH, 400, 'bad_request', 'SMUGGLE'),
  'another protocol': { line: `POST ${BOT_PATH} FTP/1.1`, status: 400, code: 'bad_request' },
  'HTTP/2 without TLS': { line: 'PRI * HTTP/2.0', status: 400, code: 'bad_request' },
};

const HEADERS: Record<string, Hostile> = {
  'two lengths that differ': malformed('Host: a', TYPE, LENGTH, 'Content-Length: 3'),
  'two lengths alike': malformed('Host: a', TYPE, LENGTH, LENGTH),
  'a list of lengths': malformed('Host: a', TYPE, `${LENGTH}, ${BODY.length}`),
  'a length with a sign': malformed('Host: a', TYPE, `Content-Length: +${BODY.length}`),
  'a negative length': malformed('Host: a', TYPE, 'Content-Length: -1'),
  'a length in hex': malformed('Host: a', TYPE, 'Content-Length: 0xd'),
  'a length and chunks': malformed('Host: a', TYPE, LENGTH, 'Transfer-Encoding: chunked'),
  'chunks and a length': malformed('Host: a', TYPE, 'Transfer-Encoding: chunked', LENGTH),
  'a last encoding that is not chunked': malformed('Host: a', TYPE, 'Transfer-Encoding: chunked, gzip'),
  'an unknown encoding': malformed('Host: a', TYPE, 'Transfer-Encoding: xchunked'),
  'a folded header': malformed('Host: a', TYPE, LENGTH, 'X-Folded: a\r\n b'),
  'a folded length': malformed('Host: a', TYPE, 'Content-Length:\r\n 13'),
  'a space before a colon': malformed('Host: a', TYPE, `Content-Length : ${BODY.length}`),
  'a header without a name': malformed('Host: a', TYPE, LENGTH, ': x'),
  'a header without a colon': malformed('Host: a', TYPE, LENGTH, 'nonsense'),
  'a NUL in a header': malformed('Host: a', TYPE, LENGTH, 'X-Nul: a\0b'),
  'a bare CR in a header': malformed('Host: a', TYPE, LENGTH, 'X-Cr: a\rb'),
  'no Host': malformed(TYPE, LENGTH),
  'a header of 20 KiB': {
    ...malformed('Host: a', TYPE, LENGTH, `X-Large: ${'x'.repeat(20_000)}`),
    status: 431,
    code: 'headers_too_large',
  },
  'a path of 20 KiB': { ...target(`/${'x'.repeat(20_000)}`, 431, 'headers_too_large') },
};

describe.each([
  ['everything', '*/*'],
  ['one bot', 'acme/helper'],
])('a relay that allows %s', (_what, bots) => {
  let upstream: RawUpstream;
  let relay: TestRelay;
  let cookie: string;
  beforeAll(async () => {
    upstream = await startRawUpstream(() => {});
    relay = await startRelay(upstream.url, { BOTS: bots });
    cookie = await relay.signIn();
  });
  afterAll(async () => {
    await relay.close();
    await upstream.close();
  });

  async function answerTo({ line, headers = ['Host: a', TYPE, LENGTH] }: Hostile): Promise<Answer> {
    const head = [line, `Cookie: ${cookie}`, ...headers].join('\r\n');
    const client = rawClient(relay.port, Buffer.from(`${head}\r\n\r\n${BODY}`, 'latin1'));
    await client.waitFor('"}');
    client.socket.destroy();
    return parseAnswer(client.text());
  }

  test.each(Object.entries({ ...TARGETS, ...HEADERS }))(
    'refuses %s and opens no connection upstream',
    async (_name, hostile) => {
      expectProblem(await answerTo(hostile), hostile.status, hostile.code);
      expect(upstream.sockets).toHaveLength(0);
    },
  );
});
