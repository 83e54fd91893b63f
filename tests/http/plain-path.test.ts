import { describe, expect, test } from '@jest/globals';
import { isPlainPath, isPlainRelativePath } from '../../src/http/plain-path.ts';

describe('a path', () => {
  test.each(['a/b.txt', 'a..b/c', '報告/１月.pdf', 'ﬁle', 'é/e\u0301', '50%/…', 'a%20b'])(
    '%s is plain',
    (path) => {
      expect(isPlainPath(path)).toBe(true);
    },
  );

  test.each([
    ...['..', 'a/../b', '%2e%2e/a', '%252e%252e/a', 'a\\b'],
    // What leads elsewhere for a service that reads the letters of another width as the usual ones.
    ...['\uff0e\uff0e/x', '\u2025/x', 'a\uff0f../b', 'a\uff0f\u2025\uff0fb', 'a\uff3cb'],
    // What is not seen, and what some services drop.
    ...['.\u200b./x', 'a/.\u00ad./b', '%E2%80%8B../x'],
    ...['\uff052e%2e/x', '%ef%bc%8e%EF%BC%8E/x', '%e2%80%a5/x', '.\uff0e/x', '\u2024\u2024/x'],
  ])('%s is not plain', (path) => {
    expect(isPlainPath(path)).toBe(false);
  });

  test.each(['a/b.txt', 'Report: Q1.txt', './a'])('%s is relative', (path) => {
    expect(isPlainRelativePath(path)).toBe(true);
  });

  test.each([
    '/etc/passwd',
    '//host/x',
    '%2Fetc',
    '%252Fetc',
    '\uff0fetc',
    'C:/x',
    'file:///x',
    '\u200b/x',
    '../x',
    '',
  ])('%s is not relative, or not plain', (path) => {
    expect(isPlainRelativePath(path)).toBe(false);
  });
});
