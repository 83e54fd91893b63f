import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import {
  type FakeLoadBalancer,
  type Identity,
  selfSigned,
  startFakeLoadBalancer,
} from '../harness/faults/fake-load-balancer.ts';
import { checkEnvironment, runCheck } from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const identities = {} as Record<'good' | 'soon' | 'expired' | 'other' | 'unknown', Identity>;
let trustedBefore: readonly string[];
beforeAll(() => {
  Object.assign(identities, {
    // OpenSSL finds certificates by their subject, so each has another one.
    good: selfSigned(90),
    soon: selfSigned(3, { subject: 'soon.test' }),
    expired: selfSigned(-1, { subject: 'expired.test' }),
    other: selfSigned(90, { names: 'DNS:other.test', subject: 'other.test' }),
    unknown: selfSigned(90, { subject: 'unknown.test' }),
  });
  const { good, soon, expired, other } = identities;
  trustedBefore = tls.getCACertificates('default');
  tls.setDefaultCACertificates([good, soon, expired, other].map(({ cert }) => cert));
});
afterAll(() => tls.setDefaultCACertificates(trustedBefore));

let service: RawUpstream;
let front: FakeLoadBalancer;
afterEach(async () => {
  await front.close();
  await service.close();
  await stopProcesses();
});

async function check(name: keyof typeof identities) {
  service = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
  front = await startFakeLoadBalancer({ identity: identities[name] });
  front.forwardTo(service.port);
  const checked = await runCheck([], checkEnvironment(front.url));
  return { ...checked, row: checked.rows.find((row) => row.check === 'TLS') };
}

describe('the certificate of the bot service', () => {
  test('is reported with its expiry if it is valid', async () => {
    const { code, row, of } = await check('good');
    expect(code).toBe(0);
    expect(row).toMatchObject({
      state: 'ok',
      says: expect.stringMatching(
        /^connected to 127\.0\.0\.1 .*valid until \d{4}-\d\d-\d\d \((89|90) days\)$/,
      ),
      measured: { certificateDaysLeft: expect.closeTo(90, 0) },
    });
    expect(of('key')).toEqual(['ok works']);
  });

  test('is a note if it expires soon', async () => {
    const { code, row } = await check('soon');
    expect([code, row?.state, row?.advice]).toEqual([0, 'note', expect.stringMatching(/runs out soon/)]);
  });

  test.each([
    [
      'expired',
      /\(CERT_HAS_EXPIRED\); certificate of expired\.test by expired\.test, ran out on \d{4}/,
      /renewed/,
    ],
    ['other', /\(ERR_TLS_CERT_ALTNAME_INVALID\)/, /other names/],
    ['unknown', /\(DEPTH_ZERO_SELF_SIGNED_CERT\); certificate of unknown\.test/, /NODE_EXTRA_CA_CERTS/],
  ] as const)('is a problem if it is %s, and no key is sent', async (name, says, advice) => {
    const { code, row, messages } = await check(name);
    expect([code, messages, service.requests]).toEqual([1, 0, []]);
    expect(row).toMatchObject({
      state: 'problem',
      says: expect.stringMatching(says),
      advice: expect.stringMatching(advice),
    });
    expect(row?.advice).not.toMatch(/REJECT_UNAUTHORIZED/);
  });
});
