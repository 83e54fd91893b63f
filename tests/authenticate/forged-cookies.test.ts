import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import { Problem } from '../../src/errors.ts';
import { call, expectProblem, parseAnswer } from '../support/call.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { type RawUpstream, startRawUpstream } from '../support/raw-upstream.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';
import { idOf, signedCookie } from '../support/sessions.ts';

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
  ['with the mark of a signature and none', () => `${NAME}=s%3A${id}`],
  ['with an empty signature', () => `${NAME}=s%3A${id}.`],
  ['with another signature', (good) => good.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))],
  ['signed by somebody else', () => signedCookie(id, 'another-secret-another-secret-0123456789')],
  ['with the signature of another id', (good) => good.replace(id, 'x'.repeat(32))],
  ['that is too long, although well signed', () => signedCookie('y'.repeat(256))],
  ['that came twice', (good) => `${good}; ${good}`],
  ['that came twice, the bad one first', (good) => `${NAME}=bad; ${good}`],
  ['whose name ends with a space', (good) => good.replace('=', ' =')],
  ['whose name ends with a tab', (good) => good.replace('=', '\t=')],
  ['whose name begins with a tab', (good) => `a=b;\t${good}`],
  ['whose name begins with the byte 0xA0', (good) => `\xa0${good}`],
  ['beside a good one whose name ends with a space', (good) => `${NAME}=bad; ${good.replace('=', ' =')}`],
  ['that is empty', () => `${NAME}=`],
  ['whose escapes are broken', () => `${NAME}=s%3A%E0%A4%A`],
  ['of the https relay', (good) => `__Host-${good}`],
];

/** Every byte with which a name can come that is none of ours; browsers keep a name as it is but for spaces and tabs. */
const notInNames = [
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

  test('is not ended by cookies of a sibling host whose names only look like the name of its own', async () => {
    const name = good.slice(0, good.indexOf('='));
    const ask = (Cookie: string) => call(own.port, '/auth/session', { headers: { Cookie } });
    const looksLike = notInNames.flatMap((byte) => [`${byte}${name}`, `${name}${byte}`, `${byte} ${name}`]);
    for (const other of looksLike.filter((one) => !one.startsWith(`${name}=`))) {
      for (const cookie of [`a=b;${other}=bad; ${good}`, `${good};${other}=bad`])
        expect([cookie, (await ask(cookie)).status]).toEqual([cookie, 200]);
    }
  });
});

describe('a session cookie', () => {
  test('that is good is read once (G9)', async () => {
    expect(
      await call(relay.port, '/auth/session', { headers: { Cookie: `a=b; ${cookie}; c=d` } }),
    ).toMatchObject({
      status: 200,
    });
    expect(reads).toHaveBeenCalledTimes(1);
    expect(reads.mock.calls[0]?.[0]).toBe(sessionKey(id));
  });

  test('that is as long as can be is read (G9)', async () => {
    // The longest that fits: how many characters of a signature need an escape differs.
    const lengths = Array.from({ length: 200 }, (_, length) => signedCookie('y'.repeat(length)));
    const fits = lengths.findLast((each) => each.length <= 256) as string;
    await call(relay.port, '/auth/session', { headers: { Cookie: fits } });
    expect(reads).toHaveBeenCalledTimes(1);
  });

  test.each(forged)('%s is no session, and the store is not asked (G9)', async (_what, forge) => {
    const answer = await call(relay.port, '/auth/session', { headers: { Cookie: forge(cookie) } });
    expectProblem(answer, 401, 'unauthenticated');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(reads).not.toHaveBeenCalled();
  });

  test('that came in two Cookie headers is no session, and the store is not asked (G9)', async () => {
    const client = rawClient(
      relay.port,
      rawMessage({ cookie, headers: [`Cookie: ${cookie}`, 'Connection: close'] }),
    );
    await client.closed;
    expectProblem(parseAnswer(client.text()), 401, 'unauthenticated');
    expect(reads).not.toHaveBeenCalled();
    expect(upstream.sockets).toHaveLength(0);
  });

  test('that is well signed but unknown to the store is no session (G9)', async () => {
    const answer = await call(relay.port, '/auth/session', {
      headers: { Cookie: signedCookie('z'.repeat(32)) },
    });
    expectProblem(answer, 401, 'unauthenticated');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(reads).toHaveBeenCalledTimes(1);
  });

  test('whose session cannot be read is 503, never anonymous', async () => {
    const cause = new Error('the store is away');
    reads.mockRejectedValue(new Problem('session_store_unavailable', 'Try again.', { retryAfter: 1, cause }));
    const answer = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers['retry-after']).toBe('1');
    expect(answer.body).not.toContain('away');
  });
});
