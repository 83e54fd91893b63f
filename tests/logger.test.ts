import { describe, expect, jest, test } from '@jest/globals';
import { createLogger, type Logger } from '../src/logger.ts';

/** The lines that `write` logs at `level` and above, as text. */
function printed(write: (logger: Logger) => void, level = 'trace'): string[] {
  const lines: string[] = [];
  write(createLogger(level, { write: (line) => void lines.push(line) }));
  return lines;
}

describe('a log line', () => {
  test('is one line of JSON with level, time and message, and nothing about the machine', () => {
    const before = Date.now();
    const [line = '', ...others] = printed((logger) => logger.info({ status: 200 }, 'with\na new line'));
    expect(others).toEqual([]);
    expect(line).toMatch(/^\{[^\n]*\}\n$/);
    const { time, ...rest } = JSON.parse(line);
    expect(rest).toEqual({ level: 'info', status: 200, msg: 'with\na new line' });
    expect(new Date(time).toISOString()).toBe(time);
    expect(Date.parse(time)).toBeGreaterThanOrEqual(before);
    expect(Date.parse(time)).toBeLessThanOrEqual(Date.now());
  });

  test('has its own time in ms, also in the same second as the line before and in the next', () => {
    const times = [0, 7, 45, 999, 1_000, 61_020, 500].map((ms) => Date.UTC(2026, 10, 23, 9, 59, 59) + ms);
    jest.useFakeTimers();
    const lines = printed((logger) => {
      for (const time of times) {
        jest.setSystemTime(time);
        logger.info('x');
      }
    });
    jest.useRealTimers();
    expect(lines.map((line) => JSON.parse(line).time)).toEqual(
      times.map((time) => new Date(time).toISOString()),
    );
  });

  test('has the level as a name', () => {
    for (const level of ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const) {
      expect(JSON.parse(printed((logger) => logger[level]('x'))[0] ?? '')).toMatchObject({ level });
    }
  });

  test('is printed only at the chosen level and above', () => {
    const all = (logger: Logger) => {
      for (const level of ['debug', 'info', 'warn', 'error'] as const) logger[level](level);
    };
    expect(printed(all, 'warn').map((line) => JSON.parse(line).msg)).toEqual(['warn', 'error']);
    expect(printed(all, 'silent')).toEqual([]);
  });
});

describe('the redaction of the log', () => {
  const CANARY = 'canary-value';
  const { headers, ...whole }: Record<string, unknown> = {
    headers: { 'x-api-key': CANARY, 'x-session': CANARY },
    req: { url: CANARY },
    res: { body: CANARY },
    cookie: CANARY,
    authorization: CANARY,
    password: CANARY,
  };
  const deep = {
    'upstream.headers': { upstream: { headers } },
    'upstream.cookie': { upstream: { cookie: CANARY } },
    'upstream.authorization': { upstream: { authorization: CANARY } },
    'body.password': { body: { password: CANARY } },
    'upstream.x-api-key': { upstream: { 'x-api-key': CANARY } },
    'err.config': { err: Object.assign(new Error('x'), { config: { headers } }) },
    'err.options': { err: Object.assign(new Error('x'), { options: { headers } }) },
  };
  const cases = [
    ['headers', { headers }],
    ...Object.entries(whole).map(([name, value]) => [name, { [name]: value }]),
    ...Object.entries(deep),
  ] as [string, object][];

  test.each(cases)('redacts %s', (_name, fields) => {
    const [line = ''] = printed((logger) => logger.info(fields, 'x'));
    expect(line).toContain('[redacted]');
    expect(line).not.toContain(CANARY);
  });

  test('keeps an error with its stack', () => {
    const [line = ''] = printed((logger) => logger.error({ err: new Error('broken') }, 'fault'));
    expect(JSON.parse(line)).toMatchObject({
      err: { type: 'Error', message: 'broken', stack: expect.stringContaining('logger.test') },
    });
  });
});
