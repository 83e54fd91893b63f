import { describe, expect, test } from '@jest/globals';
import { CLAIMED_ADDRESS, clientFinding, failuresFinding } from '../../src/check/judge-probes.ts';

const claimed = CLAIMED_ADDRESS;
const client = '198.51.100.9';
const proxy = '10.0.0.1';

describe('an address that a client claims', () => {
  test.each<[string, string, string[], Parameters<typeof clientFinding>[1], string, RegExp | undefined]>([
    ['is dropped by the load balancer', client, [client], 1, 'ok', undefined],
    ['is not read without TRUST_PROXY', proxy, [claimed], false, 'ok', undefined],
    ['comes before the address that one proxy adds', client, [claimed, client], 1, 'ok', undefined],
    [
      'comes before the address that a listed proxy adds',
      client,
      [claimed, client],
      ['10.0.0.0/8'],
      'ok',
      undefined,
    ],
    ['is forwarded', claimed, [claimed], 1, 'problem', /overwrite it/],
    ['is forwarded by two proxies', claimed, [claimed], 2, 'problem', /overwrite it/],
    [
      'is read with a TRUST_PROXY that is too high',
      claimed,
      [claimed, client],
      2,
      'problem',
      /^Set TRUST_PROXY to 1,/,
    ],
    [
      'is read with a list that contains the client',
      claimed,
      [claimed, client],
      [client],
      'problem',
      /^Take this machine/,
    ],
    [
      'comes before two addresses, of which one is read',
      proxy,
      [claimed, client, proxy],
      1,
      'problem',
      /^Set TRUST_PROXY to 2\.$/,
    ],
    [
      'comes before an address that is not read',
      proxy,
      [claimed, client],
      false,
      'problem',
      /^Set TRUST_PROXY to 1\.$/,
    ],
    [
      'is replaced by an address that is not read',
      proxy,
      [client],
      false,
      'problem',
      /^Set TRUST_PROXY to 1\.$/,
    ],
    [
      'is replaced, and a second proxy adds an address that is not read',
      proxy,
      [client, proxy],
      1,
      'problem',
      /^Set TRUST_PROXY to 2\.$/,
    ],
  ])('is judged correctly if it %s', (_what, address, forwarded, trustProxy, state, advice) => {
    const finding = clientFinding({ address, forwarded }, trustProxy);
    expect(finding.state).toBe(state);
    if (advice) expect(finding.advice).toMatch(advice);
    else expect(finding.advice).toBeUndefined();
  });
});

describe('the finding about failed requests', () => {
  const seen = (...arrivals: number[]) =>
    arrivals.map((n, at) => ({ how: `failure ${at}`, isCut: at === 2, arrivals: n }));

  test('is ok if each came once', () => {
    expect(failuresFinding(seen(1, 1), true)).toEqual({
      state: 'ok',
      says: 'a POST came once: failure 0, failure 1',
    });
    expect(failuresFinding(seen(1, 1), false)).toMatchObject({
      state: 'note',
      advice: expect.stringMatching(/one instance/),
    });
  });

  test('is a problem if one came again, even if others were not seen', () => {
    expect(failuresFinding(seen(0, 3, 1), false)).toMatchObject({
      state: 'problem',
      says: expect.stringMatching(
        /\(3 times after failure 1\): an operation, or the resumption of a message,/,
      ),
    });
    expect(failuresFinding(seen(0, 3, 2), false)).toMatchObject({
      state: 'problem',
      says: expect.stringMatching(
        /after failure 1, 2 times after failure 2\): a message would run, and be paid,/,
      ),
    });
  });

  test('is a note if they were not seen', () => {
    expect(failuresFinding(seen(1, 0), true)).toMatchObject({
      state: 'note',
      says: expect.stringMatching(/failure 1$/),
    });
    expect(failuresFinding(seen(0), false)).toMatchObject({ advice: expect.stringMatching(/REDIS_URL/) });
  });
});
