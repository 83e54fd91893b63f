import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { type Answer, call, expectNobody, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';
import { BOT_PATH, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

/** Sends a request with this head on a new connection; returns its answer. */
async function raw(port: number, line: string, ...headers: string[]): Promise<Answer> {
  const client = rawClient(port, `${[line, ...headers, 'Connection: close'].join('\r\n')}\r\n\r\n`);
  await client.closed;
  return parseAnswer(client.text());
}
const asking = (host: string, path = '/auth/session') => [`GET ${path} HTTP/1.1`, `Host: ${host}`] as const;

/** Names that are on no list, and texts that are no names. */
const FOREIGN = [
  ...[
    'evil.example',
    'evil.example:3000',
    'localhost.evil.example',
    'evil-localhost',
    '127.0.0.1.evil.example',
  ],
  ...[
    '128.0.0.1',
    '126.255.255.255',
    '0.0.0.0',
    '192.168.1.5',
    '10.0.0.1:3000',
    '[::2]',
    '[::]',
    '[fe80::1]',
  ],
  // No host, and forms that other parsers of a URL read in another way.
  ...[
    'localhost..',
    '',
    ':3000',
    '.',
    'evil.example@localhost',
    'localhost@evil.example',
    'evil.example#localhost',
  ],
  ...[
    'localhost:3000@evil.example',
    'evil.example/localhost',
    'evil.example?localhost',
    'evil.example\\localhost',
  ],
  ...['evil.example localhost', 'localhost, evil.example', 'local%68ost', 'http://localhost', '::1', '[::1'],
  ...['[::1%25lo]', '[::1]evil.example', 'localhost:port', 'localhost:3000:3000'],
];
const LOOPBACK = [
  ...['localhost', 'LocalHost:3000', 'localhost:', 'localhost.', 'localhost.:3000', 'app.localhost'],
  ...[
    'a.b.localhost:8080',
    '127.0.0.1',
    '127.0.0.1:65535',
    '127.255.255.254',
    '127.1',
    '[::1]',
    '[::1]:3000',
  ],
  ...['[0:0:0:0:0:0:0:1]', '[0:0::0.0.0.1]'],
];
const CONFIGURED = [
  ...[
    'demo.test',
    'DEMO.TEST.:1',
    'my-laptop.local:3000',
    'bot_relay_1:3000',
    '192.168.1.7',
    '[fd00::7]:3000',
  ],
  '[FD00:0:0::0007]',
];

describe('the demo', () => {
  let port: number;
  beforeAll(async () => {
    const environment = {
      PORT: '0',
      PUBLIC_URL: 'http://Demo.Test:8080',
      ALLOWED_HOSTS: 'my-laptop.local, bot_relay_1,192.168.1.7,fd00::7',
      ALLOWED_ORIGINS: 'http://partner.example',
    };
    port = await startProcess({ environment }).listening();
  });
  afterAll(() => stopProcesses());

  test.each([...LOOPBACK, ...CONFIGURED])('answers to %s', async (host) => {
    expectNobody(await raw(port, ...asking(host)));
  });

  test.each(FOREIGN)('does not answer to "%s"', async (host) => {
    expectProblem(await raw(port, ...asking(host)), 421, 'unknown_host');
  });

  test('allows sign-in from another machine at the address of PUBLIC_URL', async () => {
    // Over http, browsers send Sec-Fetch-Site only to loopback addresses.
    const own = { Host: 'demo.test:8080', Origin: 'http://demo.test:8080' };
    const headers = { ...own, 'Content-Type': 'application/json' };
    const body = JSON.stringify({ username: 'demo', password: 'demo' });
    expect(await call(port, '/', { headers })).toMatchObject({ status: 200 });
    expect(await call(port, '/auth/login', { method: 'POST', headers, body })).toMatchObject({ status: 200 });
  });

  test('refuses pages, preflights and all else under another name, and says what to set', async () => {
    const preflight = ['Origin: http://partner.example', 'Access-Control-Request-Method: POST'];
    for (const line of [
      ...['GET / HTTP/1.1', 'GET /chat.js HTTP/1.1', 'GET /nothing HTTP/1.1', 'GET / HTTP/1.0'],
      ...['PUT /healthz/ HTTP/1.1', 'OPTIONS /auth/login HTTP/1.1'],
    ]) {
      const { detail } = expectProblem(
        await raw(port, line, 'Host: evil.example:3000', ...preflight),
        421,
        'unknown_host',
      );
      expect(detail).toMatch(/PUBLIC_URL.*ALLOWED_HOSTS/);
    }
    const allowed = await raw(port, 'OPTIONS /auth/login HTTP/1.1', 'Host: localhost', ...preflight);
    expect(allowed).toMatchObject({ status: 204 });
  });

  test('uses only the header Host, and answers to HTTP/1.0 without it, which no browser uses', async () => {
    const claims = ['X-Forwarded-Host: localhost', 'Forwarded: host=localhost', 'X-Host: localhost'];
    expectProblem(await raw(port, ...asking('evil.example'), ...claims), 421, 'unknown_host');
    expectNobody(await raw(port, 'GET /auth/session HTTP/1.0'));
  });

  test.each(['/healthz', '/readyz', '/healthz?x=1'])('answers under any name at %s', async (path) => {
    expect(await raw(port, ...asking('10.0.0.1:3000', path))).toMatchObject({ status: 200 });
  });
});

describe('a relay with a real bot service', () => {
  let upstream: RawUpstream;
  let relay: TestRelay;
  beforeAll(async () => {
    upstream = await startRawUpstream(() => {});
  });
  afterEach(() => relay.close());
  afterAll(() => upstream.close());

  test('answers to every name if ALLOWED_HOSTS is not set', async () => {
    relay = await startRelay(upstream.url);
    for (const host of ['evil.example', 'app.example.com', '10.0.0.1', ''])
      expectNobody(await raw(relay.port, ...asking(host)));
  });

  test('answers only to the names of ALLOWED_HOSTS and PUBLIC_URL if it is set, and refuses without a store', async () => {
    const hosts = { ALLOWED_HOSTS: 'internal.example,127.0.0.1', BASE_PATH: '/chat-api' };
    relay = await startRelay(upstream.url, hosts);
    const { port } = relay;
    const cookie = `Cookie: ${await relay.signIn()}`;
    const uses = (['get', 'state', 'set', 'extend'] as const).map((name) => jest.spyOn(relay.sessions, name));
    for (const host of ['evil.example', 'localhost', '127.0.0.2', '']) {
      const answer = await raw(port, `POST /chat-api${BOT_PATH} HTTP/1.1`, `Host: ${host}`, cookie);
      expectProblem(answer, 421, 'unknown_host');
    }
    for (const use of uses) expect(use).not.toHaveBeenCalled();
    for (const host of ['internal.example:3000', 'APP.example.com'])
      expect(await raw(port, ...asking(host, '/chat-api/auth/session'), cookie)).toMatchObject({
        status: 200,
      });
    for (const path of ['/chat-api/healthz', '/chat-api/readyz'])
      expect(await raw(port, ...asking('10.0.0.1', path))).toMatchObject({ status: 200 });
    expectProblem(await raw(port, ...asking('10.0.0.1', '/healthz')), 421, 'unknown_host');
    const line = await relay.logLine(({ outcome }) => outcome === 'unknown_host');
    expect(line).toMatchObject({ route: 'none', status: 421 });
  });
});
