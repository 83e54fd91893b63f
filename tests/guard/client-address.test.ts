import { afterEach, describe, expect, test } from '@jest/globals';
import type { Request } from 'express';
import { clientAddress } from '../../src/http/client-address.ts';
import { call } from '../support/call.ts';
import { startStage, type TestStage } from '../support/stage.ts';

const of = (ip: string | undefined, remoteAddress: string | undefined = '10.0.0.1') =>
  clientAddress({ ip, socket: { remoteAddress } } as Request);

describe('the address that a request counts for', () => {
  test.each([
    ['an IPv4 address', '192.0.2.1', '192.0.2.1'],
    ['with the port that some load balancers add', '192.0.2.1:50123', '192.0.2.1'],
    ['in IPv6 form', '::ffff:192.0.2.1', '192.0.2.1'],
    ['in IPv6 form by hex digits', '::ffff:c000:201', '192.0.2.1'],
    ['in IPv6 form with a port', '[::ffff:192.0.2.1]:50123', '192.0.2.1'],
    ['no address', 'unknown', '10.0.0.1'],
    ['an address that nobody has', '300.0.2.1', '10.0.0.1'],
    ['with a leading zero', '192.0.2.01', '10.0.0.1'],
    ['a script', '<script>', '10.0.0.1'],
    ['empty', '', '10.0.0.1'],
    ['nothing', undefined, '10.0.0.1'],
  ])('is, for %s', (_what, ip, expected) => {
    expect(of(ip)).toBe(expected);
  });

  test('is one for a whole IPv6 /56, however its addresses are written (G16)', () => {
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

  test('is one for all whose address is gone', () => {
    expect(clientAddress({ ip: undefined, socket: {} } as Request)).toBe('unknown');
  });
});

describe('behind load balancers', () => {
  let stage: TestStage;
  afterEach(() => stage.close());

  const seen = async (trust: number | string[] | false, forwardedFor: string) => {
    stage = await startStage((app) => {
      app.set('trust proxy', trust);
      app.get('/', (req, res) => void res.end(clientAddress(req)));
    });
    return (await call(stage.port, '/', { headers: { 'X-Forwarded-For': forwardedFor } })).body;
  };

  test.each<[string, number | string[] | false, string, string]>([
    ['nobody is trusted', false, '203.0.113.1', '127.0.0.1'],
    ['one hop is, and said who called it', 1, '192.0.2.7', '192.0.2.7'],
    ['one hop is, and the client wrote the rest', 1, '203.0.113.1, 192.0.2.7', '192.0.2.7'],
    ['two hops are', 2, '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    ['addresses are, and the client claims to be one', ['127.0.0.1'], '127.0.0.1, 192.0.2.7', '192.0.2.7'],
    ['networks are', ['127.0.0.0/8', '10.0.0.0/8'], '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    ['the caller is none of those that are', ['10.0.0.0/8'], '203.0.113.1', '127.0.0.1'],
  ])('is the last that a trusted one has seen, where %s (G16)', async (_who, trust, header, expected) => {
    expect(await seen(trust, header)).toBe(expected);
  });
});
