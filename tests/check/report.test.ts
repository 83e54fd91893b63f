import { expect, test } from '@jest/globals';
import { CheckReport, reportAsTable } from '../../src/check/report.ts';
import { secret } from '../../src/secret.ts';

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
