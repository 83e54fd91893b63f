import { spawn, spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { createLogger, type Logger } from '../src/logger.ts';
import { type LogOutput, logOutput } from '../src/process/log-output.ts';
import { until } from './support/pair.ts';
import { type Kind, readableOutput, removeOutputs } from './support/readable-output.ts';

/** Opens a log to standard output, as `logger`, in a process of its own. */
const LOGGING = `
  import { logOutput } from '${import.meta.resolve('../src/process/log-output.ts')}';
  import { createLogger } from '${import.meta.resolve('../src/logger.ts')}';
  const output = logOutput({ onDropped: (lines) => logger.error({ lines }, 'dropped') });
  process.on('exit', output.end);
  const logger = createLogger('info', output);`;

let folder: string;
let fd: number;
let output: LogOutput;
let logger: Logger;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-log-'));
  fd = openSync(join(folder, 'log'), 'a');
  output = logOutput({ fd });
  logger = createLogger('info', output);
});
afterEach(() => {
  output.end();
  closeSync(fd);
  rmSync(folder, { recursive: true });
  removeOutputs();
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
  output.end();
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

/** Runs `code` with a log in a process whose standard output is of this kind, and not read as yet. */
function runUnread(kind: Kind, code: string) {
  const output = readableOutput(kind);
  const child = spawn(process.execPath, ['--input-type=module', '-e', LOGGING + code], {
    stdio: ['ignore', output.stdio, 'pipe', 'ipc'],
    // What blocks can only be killed.
    timeout: 15_000,
    killSignal: 'SIGKILL',
  });
  const told = new Promise((resolve) => child.once('message', resolve));
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const gone = exited.then(() => 'the process is gone');
  return { child, output: output.of(child), told: Promise.race([told, gone]), exited };
}

const KINDS_THAT_STALL = ['pipe', 'socket'] as const;

describe.each(KINDS_THAT_STALL)('a reader that stalls, at a %s,', (kind) => {
  test('holds nobody up; what is too much for the memory is dropped, counted and told', async () => {
    const { child, output, told, exited } = runUnread(
      kind,
      `
      const pad = 'x'.repeat(1000);
      let n = 0;
      for (; n < 12_000; n++) logger.info({ n, pad });
      output.leave();
      process.send(output.dropped());
      process.once('message', () => logger.info({ n }));
      process.once('message', () => setTimeout(() => process.disconnect(), 100));`,
    );
    const dropped = await told;
    expect(dropped).toBeGreaterThan(1000);
    output.read();
    await until(() => output.text().includes('"msg":"dropped"}\n'));
    child.send('go on');
    expect(await exited).toBe(0);
    await output.ended;
    const lines = output
      .text()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    const whole = lines.slice(0, -2);
    expect(whole.map(({ n }) => n)).toEqual(whole.map((_, n) => n));
    // All that had room.
    expect(whole.length * 1080).toBeGreaterThan(8 * 1024 * 1024);
    expect(lines.slice(-2)).toEqual([
      expect.objectContaining({ level: 'error', lines: dropped, msg: 'dropped' }),
      expect.objectContaining({ n: 12_000 }),
    ]);
    expect(whole.length + Number(dropped)).toBe(12_000);
  });

  test('delays an exit by less than a second', async () => {
    const { told, exited } = runUnread(
      kind,
      `
      const pad = 'x'.repeat(1000);
      for (let n = 0; n < 1000; n++) logger.info({ n, pad });
      process.on('exit', () => process.send(performance.now() - begun));
      const begun = performance.now();
      process.exit(3);`,
    );
    // Told by a handler that comes after the one of the log.
    expect(await told).toBeLessThan(1000);
    expect(await exited).toBe(3);
  });

  test('loses nothing at an exit if it reads again before', async () => {
    const { child, output, told, exited } = runUnread(
      kind,
      `
      const pad = 'x'.repeat(1000);
      for (let n = 0; n < 5000; n++) logger.info({ n, pad });
      process.send('logged');
      process.once('message', () => process.exit(3));`,
    );
    await told;
    output.read();
    child.send('exit');
    expect(await exited).toBe(3);
    await output.ended;
    const lines = output.text().trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).n)).toEqual(Array.from({ length: 5000 }, (_, n) => n));
  });

  test('loses nothing of very many lines either, which would leave at once one by one', async () => {
    const LINES = 60_000;
    const { child, output, told, exited } = runUnread(
      kind,
      `
      for (let n = 0; n < ${LINES}; n++) logger.warn({ n });
      process.send(output.dropped());
      process.once('message', () => process.exit(3));`,
    );
    expect(await told).toBe(0);
    output.read();
    child.send('exit');
    expect(await exited).toBe(3);
    await output.ended;
    const lines = output.text().trimEnd().split('\n');
    expect(lines).toHaveLength(LINES);
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ n: LINES - 1 });
  });
});
