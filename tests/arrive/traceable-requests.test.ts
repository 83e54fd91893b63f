import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const OTHER_SECRET = 'another-secret-of-sessions-that-is-long-enough';

let upstream: RawUpstream;
let relays: TestRelay[];
beforeEach(async () => {
  relays = [];
  upstream = await startRawUpstream((socket, { requestLine }) => {
    if (!requestLine.includes('silent')) socket.write(wholeStream('data: 1\n\n'));
  });
});
afterEach(async () => {
  for (const relay of relays) await relay.close();
  await upstream.close();
});

async function start(environment: Record<string, string> = {}): Promise<TestRelay> {
  const relay = await startRelay(upstream.url, { TRUST_PROXY: '1', ...environment });
  relays.push(relay);
  return relay;
}

let requests = 0;
/** Makes a request; returns its line of the log. */
async function lineOf(
  relay: TestRelay,
  path: string,
  { headers = {}, ...init }: { method?: string; headers?: Record<string, string>; body?: string } = {},
): Promise<Record<string, unknown>> {
  const id = `traced-${++requests}`;
  await call(relay.port, path, { ...init, headers: { 'X-Request-Id': id, ...headers } });
  return relay.logLine((line) => line.requestId === id && line.msg === 'request');
}

const from = (address: string) => ({ headers: { 'X-Forwarded-For': address } });

describe('the address of a client in the log', () => {
  test.each([
    ['203.0.113.7', '203.0.113.7'],
    ['::ffff:203.0.113.7', '203.0.113.7'],
    ['2001:db8:1:2ff::1', '2001:db8:1:200::/56'],
  ])('is the one that it counts by: of %s it is %s', async (address, logged) => {
    expect(await lineOf(await start(), '/auth/session', from(address))).toMatchObject({
      status: 401,
      clientAddress: logged,
    });
  });

  test('is there if the client leaves before its answer', async () => {
    const relay = await start({ TRUST_PROXY: '', BOTS: 'acme/*' });
    const cookie = await relay.signIn();
    const path = BOT_PATH.replace('helper', 'silent');
    const client = rawClient(
      relay.port,
      rawMessage({ cookie, path, headers: ['X-Request-Id: left-early-1'] }),
    );
    await upstream.nextRequest();
    client.socket.destroy();
    const line = await relay.logLine(
      ({ requestId, msg }) => requestId === 'left-early-1' && msg === 'request',
    );
    expect(line).toMatchObject({ outcome: 'client_closed', clientAddress: '127.0.0.1' });
  });

  test('is a hash with LOG_ADDRESSES=hashed, the same wherever the secret is the same', async () => {
    const first = await start({ LOG_ADDRESSES: 'hashed' });
    const same = await start({ LOG_ADDRESSES: 'hashed' });
    const other = await start({ LOG_ADDRESSES: 'hashed', SESSION_SECRETS: OTHER_SECRET });
    const hashOf = async (relay: TestRelay, address: string) =>
      (await lineOf(relay, '/auth/session', from(address))).clientAddress;
    const hash = await hashOf(first, '203.0.113.7');
    expect(hash).toMatch(/^[\w-]{16}$/);
    expect(await hashOf(first, '203.0.113.7')).toBe(hash);
    expect(await hashOf(same, '203.0.113.7')).toBe(hash);
    expect(await hashOf(other, '203.0.113.7')).not.toBe(hash);
    expect(await hashOf(first, '203.0.113.8')).not.toBe(hash);
    expect(JSON.stringify(relays.flatMap(({ logs }) => logs))).not.toContain('203.0.113');
  });

  test('is left out with LOG_ADDRESSES=off', async () => {
    const relay = await start({ LOG_ADDRESSES: 'off' });
    expect(await lineOf(relay, '/auth/session', from('203.0.113.7'))).not.toHaveProperty('clientAddress');
    expect(JSON.stringify(relay.logs)).not.toContain('203.0.113');
  });
});

describe('who is behind a refused request, in the log', () => {
  const login = (relay: TestRelay, username: string, password = 'wrong') =>
    lineOf(relay, '/auth/login', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': '203.0.113.7' },
      body: JSON.stringify({ username, password }),
    });

  test('is the account of a sign-in that has failed, or that is locked', async () => {
    const relay = await start({ LOGIN_MAX_FAILURES: '1' });
    const by = { account: 'ada', clientAddress: '203.0.113.7' };
    expect(await login(relay, 'ada')).toMatchObject({ outcome: 'invalid_credentials', ...by });
    expect(await login(relay, 'ada', CANARY.password)).toMatchObject({
      outcome: 'too_many_attempts',
      ...by,
    });
    expect(await login(relay, 'eve')).toMatchObject({ outcome: 'invalid_credentials', account: '?' });
  });

  test.each([
    ['a line of its own', 'ada\n{"level":"info","msg":"request","userId":"bob"}'],
    ['an escape of a terminal', 'ada\u001b[2J'],
    ['a change of direction', 'ada\u202e'],
    ['a quote', 'ada","userId":"bob'],
    ['a lone surrogate', 'ada\ud800'],
    ['65 characters', 'a'.repeat(65)],
    ['nothing', ''],
  ])('is no name that nobody has: one with %s', async (_what, name) => {
    const relay = await start();
    expect(await login(relay, name)).toMatchObject({ outcome: 'invalid_credentials', account: '?' });
    expect(JSON.stringify(relay.logs)).not.toContain('bob');
  });

  test.each([['CLIENT_LIMIT_PER_ADDRESS'], ['CLIENT_LIMIT_PER_SESSION']])(
    'is the user and the bot where %s is reached',
    async (limit) => {
      const relay = await start({ [limit]: '3' });
      const headers = {
        'Content-Type': 'application/json',
        'X-Forwarded-For': '203.0.113.7',
        Cookie: await relay.signIn(),
      };
      const send = () => lineOf(relay, BOT_PATH, { method: 'POST', headers, body: MESSAGE });
      for (let i = 0; i < 3; i++) await send();
      const line = await send();
      expect(line).toMatchObject({
        status: 429,
        outcome: 'too_many_attempts',
        clientAddress: '203.0.113.7',
        userId: 'ada',
        bot: 'acme/helper',
      });
    },
  );

  test('is the bot alone where nobody has signed in', async () => {
    const relay = await start();
    const line = await lineOf(relay, BOT_PATH, { method: 'POST', body: MESSAGE });
    expect(line).toMatchObject({ status: 401, bot: 'acme/helper' });
    expect(line).not.toHaveProperty('userId');
  });
});
