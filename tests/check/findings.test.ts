import { describe, expect, test } from '@jest/globals';
import { collectFindings, quoter } from '../../src/check/findings.ts';
import { findingsAsTable } from '../../src/check/print-findings.ts';

const mask = (text: string) => text.replaceAll('the-secret', '[secret]');

describe('a finding', () => {
  test('has only printable texts without secrets', () => {
    const { findings, report } = collectFindings(() => mask);
    const text = 'a\u001b[31m\nthe-secret';
    report({ state: 'note', check: 'x', about: text, says: text, advice: text, measured: { ms: 1.2345 } });
    const clean = 'a?[31m?[secret]';
    expect(findings).toEqual([
      { state: 'note', check: 'x', about: clean, says: clean, advice: clean, measured: { ms: 1.2 } },
    ]);
  });

  test('does not join the pieces of a secret', () => {
    expect(quoter(mask)('the-\u0000sec\u200bret')).toBe('the-?sec?ret');
  });

  test('is shortened only after secrets are masked', () => {
    const quoted = quoter(mask)(`${'x'.repeat(155)}the-secret`);
    expect(quoted).not.toContain('the-');
    expect(quoted.length).toBeLessThan(165);
  });
});

test('the table of findings has columns, and the advice below each row', () => {
  const findings = [
    { state: 'ok', check: 'Redis', about: 'redis:6379', says: 'answers' },
    { state: 'problem', check: 'key', about: 'a/b 00', says: 'refused', advice: 'Replace it.' },
  ] as const;
  expect(findingsAsTable({ findings, messages: 2 }).split('\n')).toEqual([
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
  const findings = [{ state: 'ok', check: 'users', says: '1 user' }] as const;
  expect(findingsAsTable({ findings, messages }).split('\n').at(-2)).toBe(line);
});
