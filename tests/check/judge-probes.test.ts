import { describe, expect, test } from '@jest/globals';
import { CLAIMED_ADDRESS, clientFinding, failuresFinding } from '../../src/check/judge-probes.ts';

const claimed = CLAIMED_ADDRESS;
const client = '198.51.100.9';
const proxy = '10.0.0.1';

describe('an address that a client claims', () => {
  test.each<[string, string, string[], Parameters<typeof clientFinding>[1], string, RegExp | undefined]>([
    ['is dropped', client, [client], 1, 'ok', undefined],
    ['stays unread, since nobody is trusted', proxy, [claimed], false, 'ok', undefined],
    ['stays behind what one proxy says', client, [claimed, client], 1, 'ok', undefined],
    ['stays behind what a proxy in a list says', client, [claimed, client], ['10.0.0.0/8'], 'ok', undefined],
    ['is passed on', claimed, [claimed], 1, 'problem', /overwrite it/],
    ['is passed on by two', claimed, [claimed], 2, 'problem', /overwrite it/],
    ['is reached by a number too high', claimed, [claimed, client], 2, 'problem', /^Set TRUST_PROXY to 1,/],
    ['is reached by a list', claimed, [claimed, client], [client], 'problem', /^Take this machine/],
    [
      'stays behind more than is read',
      proxy,
      [claimed, client, proxy],
      1,
      'problem',
      /^Set TRUST_PROXY to 2\.$/,
    ],
    [
      'stays behind what nobody reads',
      proxy,
      [claimed, client],
      false,
      'problem',
      /^Set TRUST_PROXY to 1\.$/,
    ],
    ['is overwritten by what nobody reads', proxy, [client], false, 'problem', /^Set TRUST_PROXY to 1\.$/],
    [
      'is overwritten, and another proxy says more than is read',
      proxy,
      [client, proxy],
      1,
      'problem',
      /^Set TRUST_PROXY to 2\.$/,
    ],
  ])('%s', (_what, address, forwarded, trustProxy, state, advice) => {
    const finding = clientFinding({ address, forwarded }, trustProxy);
    expect(finding.state).toBe(state);
    if (advice) expect(finding.advice).toMatch(advice);
    else expect(finding.advice).toBeUndefined();
  });
});

describe('requests that failed', () => {
  const seen = (...arrivals: number[]) => arrivals.map((n, at) => ({ how: `failure ${at}`, arrivals: n }));

  test('came once each', () => {
    expect(failuresFinding(seen(1, 1), true)).toEqual({
      state: 'ok',
      says: 'a POST came once: failure 0, failure 1',
    });
    expect(failuresFinding(seen(1, 1), false)).toMatchObject({
      state: 'note',
      advice: expect.stringMatching(/one instance/),
    });
  });

  test('came again, also where others were not seen', () => {
    expect(failuresFinding(seen(0, 3, 1), false)).toMatchObject({
      state: 'problem',
      says: expect.stringMatching(/\(3 times after failure 1\)/),
    });
  });

  test('were not seen, which proves nothing', () => {
    expect(failuresFinding(seen(1, 0), true)).toMatchObject({
      state: 'note',
      says: expect.stringMatching(/failure 1$/),
    });
    expect(failuresFinding(seen(0), false)).toMatchObject({ advice: expect.stringMatching(/REDIS_URL/) });
  });
});
