import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type LogOutput, logOutput } from '../src/log-output.ts';
import { createLogger, type Logger } from '../src/logger.ts';
import { until } from './support/pair.ts';

/** Opens a log to standard output, as `logger`, in a process of its own. */
const LOGGING = `
  import { logOutput } from '${import.meta.resolve('../src/log-output.ts')}';
  import { createLogger } from '${import.meta.resolve('../src/logger.ts')}';
  const output = logOutput();
  process.on('exit', output.leave);
  const logger = createLogger('info', output);`;

let folder: string;
let fd: number;
let output: LogOutput;
let logger: Logger;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-log-'));
  fd = openSync(join(folder, 'log'), 'a');
  output = logOutput(fd);
  logger = createLogger('info', output);
});
afterEach(() => {
  output.leave();
  closeSync(fd);
  rmSync(folder, { recursive: true });
});

/** The messages that have left so far. */
const left = () =>
  readFileSync(join(folder, 'log'), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line).msg);

test('a line leaves at once', () => {
  logger.info('a');
  expect(left()).toEqual(['a']);
});

test('lines that follow another closely leave together, soon and in order', async () => {
  for (const msg of ['a', 'b', 'c']) logger.info(msg);
  expect(left()).toEqual(['a']);
  await until(() => left().length > 1);
  expect(left()).toEqual(['a', 'b', 'c']);
  logger.info('d');
  expect(left()).toEqual(['a', 'b', 'c', 'd']);
});

test.each(['warn', 'error', 'fatal'] as const)(
  'at %s a line waits for nobody, nor do those before it',
  (level) => {
    for (const msg of ['a', 'b']) logger.info(msg);
    logger[level]('c');
    expect(left()).toEqual(['a', 'b', 'c']);
  },
);

test('many lines do not wait until there are too many', () => {
  const long = 'x'.repeat(1000);
  for (let n = 0; n < 40; n++) logger.info(long);
  expect(left().length).toBeGreaterThan(20);
});

test('a long line, and lines of more than ASCII, leave whole and in order', () => {
  const messages = ['a', 'ü'.repeat(3000), 'b', 'x'.repeat(20_000), '語'.repeat(2000), 'c'];
  for (const msg of messages) logger.info(msg);
  output.leave();
  expect(left()).toEqual(messages);
});

test.each([
  ['by itself', ''],
  ['because it is told to', 'process.exit(1)'],
  ['for a fault', 'throw new Error("fault")'],
])('nothing is lost when the process ends %s', (_how, end) => {
  const code = `${LOGGING}
    for (const msg of ['a', 'b', 'c']) logger.info(msg);
    ${end}`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8' });
  const messages = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).msg);
  expect(messages).toEqual(['a', 'b', 'c']);
});

test('processes that share a pipe leave the lines of each other whole, however slowly it is read', () => {
  const LINES = 1500;
  const writer = `${LOGGING}
    const pad = 'x'.repeat(300);
    for (let n = 0; n < ${LINES}; n++) logger.info({ pid: process.pid, n, pad });`;
  const reader = `
    import { readSync } from 'node:fs';
    const buffer = Buffer.alloc(8192);
    const clock = new Int32Array(new SharedArrayBuffer(4));
    for (let length; (length = readSync(0, buffer)) > 0; Atomics.wait(clock, 0, 0, 1))
      process.stdout.write(buffer.toString('latin1', 0, length));`;
  // A pipe of the shell: Node's own would be a pair of sockets.
  const both = '("$NODE" --input-type=module -e "$WRITER" & "$NODE" --input-type=module -e "$WRITER" & wait)';
  const { stdout } = spawnSync('sh', ['-c', `${both} | "$NODE" --input-type=module -e "$READER"`], {
    encoding: 'utf8',
    env: { NODE: process.execPath, WRITER: writer, READER: reader },
    maxBuffer: 1e8,
  });
  const next = new Map<number, number>();
  for (const line of stdout.trim().split('\n')) {
    const { pid, n } = JSON.parse(line);
    expect(n).toBe(next.get(pid) ?? 0);
    next.set(pid, n + 1);
  }
  expect([...next.values()]).toEqual([LINES, LINES]);
});
