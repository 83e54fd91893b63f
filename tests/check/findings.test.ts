import { describe, expect, test } from '@jest/globals';
import { collectFindings, quoter } from '../../src/check/findings.ts';
import { findingsAsTable } from '../../src/check/print-findings.ts';

const mask = (text: string) => text.replaceAll('the-secret', '[secret]');

describe('a finding', () => {
  test('is without secrets and printable in all of its texts, whoever made it', () => {
    const { findings, report } = collectFindings(() => mask);
    const text = 'a\u001b[31m\nthe-secret';
    report({ state: 'note', check: 'x', about: text, says: text, advice: text, measured: { ms: 1.2345 } });
    const clean = 'a?[31m?[secret]';
    expect(findings).toEqual([
      { state: 'note', check: 'x', about: clean, says: clean, advice: clean, measured: { ms: 1.2 } },
    ]);
  });

  test('does not put together a secret that comes in pieces', () => {
    expect(quoter(mask)('the-\u0000sec\u200bret')).toBe('the-?sec?ret');
  });

  test('does not cut a secret before it is masked', () => {
    const quoted = quoter(mask)(`${'x'.repeat(155)}the-secret`);
    expect(quoted).not.toContain('the-');
    expect(quoted.length).toBeLessThan(165);
  });
});

test('findings line up in columns, with what to do below', () => {
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
])('the last line tells what %i messages prove', (messages, line) => {
  const findings = [{ state: 'ok', check: 'users', says: '1 user' }] as const;
  expect(findingsAsTable({ findings, messages }).split('\n').at(-2)).toBe(line);
});
