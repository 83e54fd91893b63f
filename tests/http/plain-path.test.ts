import { describe, expect, test } from '@jest/globals';
import { isPlainPath } from '../../src/http/plain-path.ts';

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
    ...['\uff052e%2e/x', '%ef%bc%8e%EF%BC%8E/x', '%e2%80%a5/x', '.\uff0e/x', '\u2024\u2024/x'],
  ])('%s is not plain', (path) => {
    expect(isPlainPath(path)).toBe(false);
  });
});
