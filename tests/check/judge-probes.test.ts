import { describe, expect, test } from '@jest/globals';
import { CLAIMED_ADDRESS, clientVerdict, failuresVerdict } from '../../src/check/through-probes.ts';

const [X, CLIENT, PROXY] = [CLAIMED_ADDRESS, '198.51.100.9', '10.0.0.1'];
const OVERWRITE = /overwrite it/;

describe('an address that a client claims', () => {
  type Trust = Parameters<typeof clientVerdict>[1];
  // What happens to it, the address that the relay takes, X-Forwarded-For, TRUST_PROXY, and the advice, if it is a problem.
  test.each<[string, string, string[], Trust, RegExp?]>([
    ['is dropped', CLIENT, [CLIENT], 1],
    ['is not read', PROXY, [X], false],
    ['comes before the address that one proxy adds', CLIENT, [X, CLIENT], 1],
    ['comes before the address that a listed proxy adds', CLIENT, [X, CLIENT], ['10.0.0.0/8']],
    ['is forwarded', X, [X], 1, OVERWRITE],
    ['is forwarded by two proxies', X, [X], 2, OVERWRITE],
    ['is read with a TRUST_PROXY that is too high', X, [X, CLIENT], 2, /^Set TRUST_PROXY to 1,/],
    ['is read with a list that has the client', X, [X, CLIENT], [CLIENT], /^Take this machine/],
    ['comes before two, of which one is read', PROXY, [X, CLIENT, PROXY], 1, /^Set TRUST_PROXY to 2\.$/],
    ['comes before one that is not read', PROXY, [X, CLIENT], false, /^Set TRUST_PROXY to 1\.$/],
    ['is replaced by one that is not read', PROXY, [CLIENT], false, /^Set TRUST_PROXY to 1\.$/],
    ['is replaced, and a proxy adds one', PROXY, [CLIENT, PROXY], 1, /^Set TRUST_PROXY to 2\.$/],
  ])('is judged correctly if it %s', (_what, address, forwarded, trustProxy, advice = undefined) => {
    const verdict = clientVerdict({ address, forwarded }, trustProxy);
    expect(verdict.state).toBe(advice ? 'problem' : 'ok');
    if (advice) expect(verdict.advice).toMatch(advice);
    else expect(verdict.advice).toBeUndefined();
  });
});

describe('POSTs that have failed are', () => {
  const COUNTS_ALONE = /one instance/;
  // How often those with 500, 502 and a cut connection came, and whether instances count together.
  test.each<[string, number[], boolean, string, RegExp, RegExp?]>([
    ['fine if each came once', [1, 1, 1], true, 'ok', /once: a 500, a 502, a cut connection$/],
    ['a note if only one instance counted', [1, 1, 1], false, 'note', /once/, COUNTS_ALONE],
    ['a problem if one came again', [0, 3, 1], false, 'problem', /\(3 times after a 502\): an operation,/],
    ['a paid problem after a cut', [0, 3, 2], true, 'problem', /, 2 times after a cut .* be paid,/, /nginx/],
    ['a note if one was not seen', [1, 0, 1], true, 'note', /failed with a 502$/, /below \/generic\//],
    ['a note if instances count alone', [0, 1, 1], false, 'note', /with a 500$/, /REDIS_URL/],
  ])('%s', (_what, arrivals, shared, state, says, advice = /^/) => {
    const seen = (['500', '502', 'cut'] as const).map((ask, at) => ({ ask, arrivals: arrivals[at] ?? 0 }));
    const verdict = failuresVerdict(seen, shared);
    expect(verdict).toMatchObject({ state, says: expect.stringMatching(says) });
    expect(verdict.advice ?? '').toMatch(advice);
  });
});
