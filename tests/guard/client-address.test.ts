import { afterEach, describe, expect, test } from '@jest/globals';
import type { Request } from 'express';
import { clientAddress } from '../../src/http/client-address.ts';
import { nameHolders } from '../../src/pace/holders.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { startRelay } from '../harness/relay/relay.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const of = (ip: string | undefined, remoteAddress: string | undefined = '10.0.0.1') =>
  clientAddress({ ip, socket: { remoteAddress } } as Request);

describe('the address that a request counts for', () => {
  test.each([
    ['192.0.2.1', '192.0.2.1'],
    ['192.0.2.1:50123', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['[::ffff:192.0.2.1]:50123', '192.0.2.1'],
    ...['unknown', '300.0.2.1', '192.0.2.01', '<script>', '', undefined].map(
      (ip) => [ip, '10.0.0.1'] as const,
    ),
  ])('is for %j %s', (ip, expected) => {
    expect(of(ip)).toBe(expected);
    expect(clientAddress({ ip: undefined, socket: {} } as Request)).toBe('unknown');
  });

  test('is the same for all addresses of an IPv6 /56, in any notation', () => {
    const same = [
      ...['2001:db8:0:aa00::1', '2001:db8:0:aaff:ffff:ffff:ffff:ffff', '2001:0DB8:0000:AA12:0:0:0:1'],
      ...[
        '[2001:db8:0:aa01::1]',
        '[2001:db8:0:aa01::1]:50123',
        '2001:db8:0:aa01::1%eth0',
        '2001:db8:0:aa01::1%2',
      ],
    ];
    expect(new Set(same.map((ip) => of(ip))).size).toBe(1);
    expect(of('2001:db8:0:ab00::1')).not.toBe(of(same[0]));
  });
});

describe('the client address behind load balancers', () => {
  let stage: TestApp;
  afterEach(() => stage.close());

  test.each<[string, number | string[] | false, string, string]>([
    ['no proxy is trusted', false, '203.0.113.1', '127.0.0.1'],
    ['one hop is trusted, and has added the client', 1, '192.0.2.7', '192.0.2.7'],
    ['one hop is trusted, and the client wrote the rest', 1, '203.0.113.1, 192.0.2.7', '192.0.2.7'],
    ['two hops are trusted', 2, '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    ['an address is trusted, and claimed', ['127.0.0.1'], '127.0.0.1, 192.0.2.7', '192.0.2.7'],
    ['networks are trusted', ['127.0.0.0/8', '10.0.0.0/8'], '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    ['the caller is not in a trusted network', ['10.0.0.0/8'], '203.0.113.1', '127.0.0.1'],
  ])('is the last one that a trusted hop has seen, where %s', async (_who, trust, header, expected) => {
    stage = await startTestApp((app) => {
      app.set('trust proxy', trust);
      app.get('/', (req, res) => void res.end(clientAddress(req)));
    });
    expect((await call(stage.port, '/', { headers: { 'X-Forwarded-For': header } })).body).toBe(expected);
  });
});

describe('for whom a message counts', () => {
  const holders = (realm: string, id: string, address = '192.0.2.1', guests = false) =>
    nameHolders({ realm, guests })(id, () => address);

  test('is a hash of realm and user, without the address', () => {
    const ann = holders('password', 'ann smith');
    expect(ann).toEqual({ user: expect.stringMatching(/^[\w-]{43}$/) });
    expect(holders('password', 'ann smith', '192.0.2.2')).toEqual(ann);
    const others = [
      holders('password', 'ann'),
      holders('guest', 'ann smith'),
      holders('oidc https://a.example client', 'ann smith'),
      holders('oidc https://a.example other', 'ann smith'),
    ];
    expect(new Set([ann, ...others].map(({ user }) => user)).size).toBe(5);
  });

  test('is of guests also a hash of their address', () => {
    const [one, same, other] = ['192.0.2.1', '192.0.2.1', '192.0.2.2'].map((address, n) =>
      holders('guest', `guest:${n}`, address, true),
    );
    expect(one?.address).toMatch(/^[\w-]{43}$/);
    expect(same?.address).toBe(one?.address);
    expect(other?.address).not.toBe(one?.address);
    expect(new Set([one, same, other].map((all) => all?.user)).size).toBe(3);
  });
});

test.each([
  ['the address of the connection if no proxy is trusted', '', (n: number) => `192.0.2.${n}`],
  ['an IPv6 /56 behind a trusted one', '1', (n: number) => `192.0.2.9, 2001:db8:0:aa0${n}::${n + 1}`],
])(
  'a relay counts failed sign-ins by %s, and does not tell how many attempts are left',
  async (_by, trust, address) => {
    const relay = await startRelay('http://127.0.0.1:9', {
      LOGIN_MAX_FAILURES_PER_ADDRESS: '5',
      TRUST_PROXY: trust,
    });
    const login = (n: number) =>
      call(relay.port, '/auth/login', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': address(n) },
        body: JSON.stringify({ username: `user${n}`, password: 'wrong' }),
      });
    for (let n = 0; n < 5; n += 1) expectProblem(await login(n), 401, 'invalid_credentials');
    const refused = await login(5);
    expectProblem(refused, 429, 'too_many_attempts', { retryable: 'new message' });
    expect(Object.keys(refused.headers).filter((name) => name.includes('ratelimit'))).toEqual([]);
    await relay.close();
  },
);
