import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session.ts';
import { Problem } from '../../src/errors.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf, signedCookie } from '../harness/relay/sessions.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

let upstream: RawUpstream;
let relay: TestRelay;
let cookie: string;
let id: string;
beforeAll(async () => {
  upstream = await startRawUpstream(() => {});
  relay = await startRelay(upstream.url);
  cookie = await relay.signIn();
  id = idOf(cookie);
});
afterAll(async () => {
  await relay.close();
  await upstream.close();
});

let reads: jest.SpiedFunction<TestRelay['sessions']['get']>;
beforeEach(() => {
  reads = jest.spyOn(relay.sessions, 'get');
});
afterEach(() => reads.mockRestore());

const NAME = 'bot_relay_session';
const forged: [string, (good: string) => string][] = [
  ['that is not signed', () => `${NAME}=${id}`],
  ['with an empty signature', () => `${NAME}=${id}.`],
  ['with another signature', (good) => good.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))],
  ['signed by somebody else', () => signedCookie(id, 'another-secret-another-secret-0123456789')],
  ['with the signature of another id', (good) => good.replace(id, 'x'.repeat(32))],
  ['that is too long, although well signed', () => signedCookie('y'.repeat(256))],
  ['that is sent twice', (good) => `${good}; ${good}`],
  ['that is sent twice, the forged one first', (good) => `${NAME}=bad; ${good}`],
  ['whose name ends with a space', (good) => good.replace('=', ' =')],
  ['whose name ends with a tab', (good) => good.replace('=', '\t=')],
  ['whose name begins with a tab', (good) => `a=b;\t${good}`],
  ['whose name begins with the byte 0xA0', (good) => `\xa0${good}`],
  ['beside a valid one whose name ends with a space', (good) => `${NAME}=bad; ${good.replace('=', ' =')}`],
  ['that is empty', () => `${NAME}=`],
  ['of the https relay', (good) => `__Host-${good}`],
];

/** Every byte that a name can begin or end with and that makes it another name: browsers trim only spaces and tabs. */
const EXTRA_BYTES = [
  ...'()<>@,:\\"/[]?={}\t',
  ...Array.from({ length: 128 }, (_, n) => String.fromCharCode(128 + n)),
];

describe.each(['http', 'https'])('over %s, the session of a user', (protocol) => {
  let own: TestRelay;
  let good: string;
  beforeAll(async () => {
    own = await startRelay(upstream.url, { PUBLIC_URL: `${protocol}://app.example.com` });
    good = await own.signIn();
  });
  afterAll(() => own.close());

  test('is not ended by cookies of a sibling host with similar names', async () => {
    const name = good.slice(0, good.indexOf('='));
    const ask = (Cookie: string) => call(own.port, '/auth/session', { headers: { Cookie } });
    for (const byte of EXTRA_BYTES) {
      const looksLike = [`${byte}${name}`, `${name}${byte}`, `${byte} ${name}`];
      const others = looksLike.filter((one) => !one.startsWith(`${name}=`)).map((one) => `${one}=bad`);
      for (const cookie of [`a=b;${others.join(';')}; ${good}`, `${good};${others.join(';')}`])
        expect([cookie, (await ask(cookie)).status]).toEqual([cookie, 200]);
    }
  });
});

describe('a session cookie', () => {
  test('that is valid is looked up once in the store', async () => {
    expect(
      await call(relay.port, '/auth/session', { headers: { Cookie: `a=b; ${cookie}; c=d` } }),
    ).toMatchObject({
      status: 200,
    });
    expect(reads).toHaveBeenCalledTimes(1);
    expect(reads.mock.calls[0]?.[0]).toBe(sessionKey(id));
  });

  test.each(forged)('%s opens no session, and the store is not asked', async (_what, forge) => {
    const answer = await call(relay.port, '/auth/session', { headers: { Cookie: forge(cookie) } });
    expectProblem(answer, 401, 'unauthenticated');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(reads).not.toHaveBeenCalled();
  });

  test('in each of two Cookie headers opens no session, and the store is not asked', async () => {
    const client = rawClient(
      relay.port,
      rawMessage({ cookie, headers: [`Cookie: ${cookie}`, 'Connection: close'] }),
    );
    await client.closed;
    expectProblem(parseAnswer(client.text()), 401, 'unauthenticated');
    expect(reads).not.toHaveBeenCalled();
    expect(upstream.sockets).toHaveLength(0);
  });

  test('that is signed but unknown to the store opens no session', async () => {
    const answer = await call(relay.port, '/auth/session', {
      headers: { Cookie: signedCookie('z'.repeat(32)) },
    });
    expectProblem(answer, 401, 'unauthenticated');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(reads).toHaveBeenCalledTimes(1);
  });

  test('whose session cannot be read from the store is answered with 503, never as anonymous', async () => {
    const cause = new Error('the store is away');
    reads.mockRejectedValue(new Problem('session_store_unavailable', 'Try again.', { retryAfter: 1, cause }));
    const answer = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers['retry-after']).toBe('1');
    expect(answer.body).not.toContain('away');
  });
});
