import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { type Arrival, arrivalVerdict, judgeArrival } from '../../src/check/judge-stream.ts';
import { observeStream } from '../../src/check/observe-stream.ts';
import { CheckReport, reportAsTable } from '../../src/check/report.ts';
import { CLAIMED_ADDRESS, clientVerdict, failuresVerdict } from '../../src/check/through-probes.ts';
import { secret } from '../../src/secret.ts';

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

/** An answer of ten events that came at once, 0.1 s after the request. */
const AT_ONCE: Arrival = { firstByteMs: 100, events: 10, moments: 1, tornMoments: 0, spreadMs: 1 };
const IN_TIME = { ...AT_ONCE, moments: 10, spreadMs: 900 };

describe('an answer', () => {
  test.each<[string, Partial<Arrival>, string]>([
    ['that came in parts', IN_TIME, 'in_time'],
    ['whose first event came long before the others', { moments: 2, spreadMs: 3000 }, 'in_time'],
    ['in blocks that mostly end inside of events', { moments: 5, tornMoments: 3 }, 'torn'],
    ['with one late packet', { moments: 5, tornMoments: 1 }, 'in_time'],
    ['that came at once after a wait', { firstByteMs: 1500 }, 'at_once'],
    ['that came at once without a wait', {}, 'unclear'],
    ['with too few events', { firstByteMs: 1500, events: 2 }, 'unclear'],
  ])('%s is judged correctly', (_what, seen, arrival) => {
    expect(judgeArrival({ ...AT_ONCE, ...seen })).toBe(arrival);
  });

  test.each<[string, number, Arrival, string]>([
    ['when the direct one had nearly ended', 900, IN_TIME, 'at_once'],
    ['long before the direct one ended', 300, IN_TIME, 'unclear'],
    ['as the direct one did', 900, AT_ONCE, 'unclear'],
  ])('that came at once, %s, is judged by comparison', (_what, firstByteMs, direct, arrival) => {
    expect(judgeArrival({ ...AT_ONCE, firstByteMs }, direct)).toBe(arrival);
  });
});

describe('a stream of which each piece comes after a pause', () => {
  afterEach(() => void jest.restoreAllMocks());

  test.each([
    [9, '\n', 'ok', 'not buffered'],
    [13, '\n', 'problem', 'blocks that end inside of events'],
    [11, '\r\n', 'ok', 'not buffered'],
    [9, '\r', 'ok', 'not buffered'],
  ])(
    'in pieces of %i bytes with lines that end in %j is found to be: %s',
    async (bytes, end, state, says) => {
      let ms = 0;
      jest.spyOn(performance, 'now').mockImplementation(() => (ms += 60));
      const text = [1, 2, 3, 4].map((n) => `data: ${n}${end}${end}`).join('');
      const pieces = text.match(new RegExp(`[^]{1,${bytes}}`, 'g')) ?? [];
      const response = Readable.from(pieces.map((piece) => Buffer.from(piece))) as IncomingMessage;
      const seen = await observeStream({ response, sentAt: 0 }, { limitMs: 60_000 });
      expect(arrivalVerdict(seen, { between: 'a proxy', advice: '' })).toMatchObject({
        state,
        says: expect.stringContaining(says),
      });
    },
  );
});

const LONG = 'x'.repeat(155);

test('a finding has only printable texts without secrets', () => {
  const report = new CheckReport();
  report.hide(secret('the-secret'));
  const text = 'a\u001b[31m\nthe-secret';
  report.about('x', text).add({ state: 'note', says: text, advice: text, measured: { ms: 1.2345 } });
  const clean = 'a?[31m?[secret]';
  expect(report.findings).toEqual([
    { state: 'note', check: 'x', about: clean, says: clean, advice: clean, measured: { ms: 1.2 } },
  ]);
  expect(report.quote('the-\u0000sec\u200bret')).toBe('the-?sec?ret');
  // Half a secret would not be found.
  expect(report.quote(`${LONG}the-secret`)).toBe(`${LONG}[secr…`);
});

test('the table of findings has columns, and the advice below each row', () => {
  const report = new CheckReport();
  report.about('Redis', 'redis:6379').ok('answers');
  report.about('key', 'a/b 00').problem('refused', 'Replace it.');
  report.messages = 2;
  expect(reportAsTable(report).split('\n')).toEqual([
    'ok       Redis  redis:6379  answers',
    'problem  key    a/b 00      refused',
    '                -> Replace it.',
    '',
    '1 problem found. 2 messages sent; each was a run of a bot.',
    '',
  ]);
});

test.each([
  [0, 'No problem found. No message was sent, so no key was tried.'],
  [1, 'No problem found. 1 message sent; it was a run of a bot.'],
])('the last line says that %i messages were sent', (messages, line) => {
  const report = Object.assign(new CheckReport(), { messages });
  report.about('users').ok('1 user');
  expect(reportAsTable(report).split('\n').at(-2)).toBe(line);
});
