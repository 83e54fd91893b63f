import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type LogOutput, logOutput } from '../src/log-output.ts';
import { createLogger, type Logger } from '../src/logger.ts';
import { until } from './support/pair.ts';

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

test.each([
  ['by itself', ''],
  ['because it is told to', 'process.exit(1)'],
  ['for a fault', 'throw new Error("fault")'],
])('nothing is lost when the process ends %s', (_how, end) => {
  const modules = [import.meta.resolve('../src/log-output.ts'), import.meta.resolve('../src/logger.ts')];
  const code = `
    import { logOutput } from '${modules[0]}';
    import { createLogger } from '${modules[1]}';
    const output = logOutput();
    process.on('exit', output.leave);
    const logger = createLogger('info', output);
    for (const msg of ['a', 'b', 'c']) logger.info(msg);
    ${end}`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8' });
  const messages = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).msg);
  expect(messages).toEqual(['a', 'b', 'c']);
});

test('lines of several processes are never mixed in a pipe that is read slowly', () => {
  const modules = [import.meta.resolve('../src/log-output.ts'), import.meta.resolve('../src/logger.ts')];
  const writer = `
    import { logOutput } from '${modules[0]}';
    import { createLogger } from '${modules[1]}';
    const output = logOutput();
    process.on('exit', output.leave);
    const logger = createLogger('info', output);
    for (let n = 0; n < 3000; n++) logger.info({ pad: 'x'.repeat(250 + (n % 90)) }, 'line');`;
  const reader = `
    import { readSync, writeSync } from 'node:fs';
    const buffer = Buffer.alloc(4096);
    for (let n; (n = readSync(0, buffer)) > 0; writeSync(1, buffer.subarray(0, n)))
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);`;
  const run = '"$0" --input-type=module -e';
  const script = `(${run} "$1" & ${run} "$1" & wait) | ${run} "$2"`;
  const { stdout } = spawnSync('sh', ['-c', script, process.execPath, writer, reader], {
    encoding: 'utf8',
    maxBuffer: 2 ** 24,
  });
  const lines = stdout.trimEnd().split('\n');
  expect(lines).toHaveLength(6000);
  expect(lines.filter((line) => !/^\{"level":"info",[^{}]*"msg":"line"\}$/.test(line))).toEqual([]);
});
