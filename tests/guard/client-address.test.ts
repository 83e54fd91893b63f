import { afterEach, describe, expect, test } from '@jest/globals';
import type { Request } from 'express';
import { clientAddress } from '../../src/http/client-address.ts';
import { call } from '../harness/clients/call.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const of = (ip: string | undefined, remoteAddress: string | undefined = '10.0.0.1') =>
  clientAddress({ ip, socket: { remoteAddress } } as Request);

describe('the address that a request counts for', () => {
  test.each([
    ['an IPv4 address', '192.0.2.1', '192.0.2.1'],
    ['an address with the port that some load balancers add', '192.0.2.1:50123', '192.0.2.1'],
    ['an IPv4 address in IPv6 form', '::ffff:192.0.2.1', '192.0.2.1'],
    ['an IPv4 address in IPv6 form with hex digits', '::ffff:c000:201', '192.0.2.1'],
    ['an IPv4 address in IPv6 form with a port', '[::ffff:192.0.2.1]:50123', '192.0.2.1'],
    ['a text that is no address', 'unknown', '10.0.0.1'],
    ['an invalid address', '300.0.2.1', '10.0.0.1'],
    ['an address with a leading zero', '192.0.2.01', '10.0.0.1'],
    ['a script', '<script>', '10.0.0.1'],
    ['an empty text', '', '10.0.0.1'],
    ['an undefined value', undefined, '10.0.0.1'],
  ])('is correct for %s', (_what, ip, expected) => {
    expect(of(ip)).toBe(expected);
  });

  test('is the same for all addresses of an IPv6 /56, in any notation', () => {
    const same = [
      '2001:db8:0:aa00::1',
      '2001:db8:0:aaff:ffff:ffff:ffff:ffff',
      '2001:0DB8:0000:AA12:0:0:0:1',
      '[2001:db8:0:aa01::1]',
      '[2001:db8:0:aa01::1]:50123',
      '2001:db8:0:aa01::1%eth0',
      '2001:db8:0:aa01::1%2',
    ];
    expect(new Set(same.map((ip) => of(ip))).size).toBe(1);
    expect(of('2001:db8:0:ab00::1')).not.toBe(of(same[0]));
  });

  test('is the same for all requests whose address is unknown', () => {
    expect(clientAddress({ ip: undefined, socket: {} } as Request)).toBe('unknown');
  });
});

describe('the client address behind load balancers', () => {
  let stage: TestApp;
  afterEach(() => stage.close());

  const seen = async (trust: number | string[] | false, forwardedFor: string) => {
    stage = await startTestApp((app) => {
      app.set('trust proxy', trust);
      app.get('/', (req, res) => void res.end(clientAddress(req)));
    });
    return (await call(stage.port, '/', { headers: { 'X-Forwarded-For': forwardedFor } })).body;
  };

  test.each<[string, number | string[] | false, string, string]>([
    ['no proxy is trusted', false, '203.0.113.1', '127.0.0.1'],
    ['one hop is trusted, and has added the client', 1, '192.0.2.7', '192.0.2.7'],
    ['one hop is trusted, and the client wrote the rest', 1, '203.0.113.1, 192.0.2.7', '192.0.2.7'],
    ['two hops are trusted', 2, '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    [
      'an address is trusted, and the client claims to be that one',
      ['127.0.0.1'],
      '127.0.0.1, 192.0.2.7',
      '192.0.2.7',
    ],
    ['networks are trusted', ['127.0.0.0/8', '10.0.0.0/8'], '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    ['the caller is not in a trusted network', ['10.0.0.0/8'], '203.0.113.1', '127.0.0.1'],
  ])('is the last one that a trusted hop has seen, where %s', async (_who, trust, header, expected) => {
    expect(await seen(trust, header)).toBe(expected);
  });
});
