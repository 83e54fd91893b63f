import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { createLogger, type Logger } from '../../src/logger.ts';
import { type LogOutput, logOutput } from '../../src/process/log-output.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { COMPILE_CACHE } from '../harness/relay/process.ts';
import { type Kind, removeOutputs } from '../harness/relay/readable-output.ts';
import { LOGGING, runUnread } from '../harness/relay/unread-process.ts';

jest.setTimeout(120_000);

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
});
afterAll(removeOutputs);

/** The messages that were written so far. */
const left = () =>
  readFileSync(join(folder, 'log'), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line).msg);

test('a line is written at once', () => {
  logger.info('a');
  expect(left()).toEqual(['a']);
});

test('lines that follow another one closely are written together, soon and in order', async () => {
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

test('many lines are written when they fill a piece', () => {
  const long = 'x'.repeat(1000);
  for (let n = 0; n < 40; n++) logger.info(long);
  expect(left().length).toBeGreaterThan(20);
});

test('a long line, and lines with more than ASCII, are written whole and in order', () => {
  const messages = ['a', 'ü'.repeat(3000), 'b', 'x'.repeat(20_000), '語'.repeat(2000), 'c'];
  for (const msg of messages) logger.info(msg);
  output.end();
  expect(left()).toEqual(messages);
});

test.each([
  ['by itself', ''],
  ['by process.exit', 'process.exit(1)'],
  ['by an uncaught error', 'throw new Error("fault")'],
])('no line is lost when the process ends %s', (_how, end) => {
  const code = `${LOGGING}
    for (const msg of ['a', 'b', 'c']) logger.info(msg);
    ${end}`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', code], {
    encoding: 'utf8',
    env: COMPILE_CACHE,
  });
  const messages = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).msg);
  expect(messages).toEqual(['a', 'b', 'c']);
});

test('processes that share a pipe do not break lines of each other, however slowly it is read', () => {
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
  // A pipe of the shell, since Node.js would make a pair of sockets.
  const both = '("$NODE" --input-type=module -e "$WRITER" & "$NODE" --input-type=module -e "$WRITER" & wait)';
  const { stdout } = spawnSync('sh', ['-c', `${both} | "$NODE" --input-type=module -e "$READER"`], {
    encoding: 'utf8',
    env: { ...COMPILE_CACHE, NODE: process.execPath, WRITER: writer, READER: reader },
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

const KINDS_THAT_STALL = ['pipe', 'socket'] as const;

describe('a reader that stalls', () => {
  testSideBySide(
    KINDS_THAT_STALL.flatMap((kind) => [
      [
        `at a ${kind} does not block the process; lines beyond the bound are dropped, counted and reported`,
        () => dropBeyondBound(kind),
      ],
      [
        `at a ${kind} does not block the process when another one that shares it has started`,
        () => startAnother(kind),
      ],
      [`at a ${kind} does not keep an exit waiting for ever`, () => exitUnread(kind)],
      [`at a ${kind} loses nothing of very many lines that are written at once`, () => writeVeryMany(kind)],
    ]),
  );
});

async function dropBeyondBound(kind: Kind) {
  const { child, output, told, exited } = runUnread(
    kind,
    `
    const pad = 'x'.repeat(1000);
    let n = 0;
    for (; n < 12_000; n++) logger.info({ n, pad });
    output.flush();
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
  // As many as fit.
  expect(whole.length * 1080).toBeGreaterThan(8 * 1024 * 1024);
  expect(lines.slice(-2)).toEqual([
    expect.objectContaining({ level: 'error', lines: dropped, msg: 'dropped' }),
    expect.objectContaining({ n: 12_000 }),
  ]);
  expect(whole.length + Number(dropped)).toBe(12_000);
}

/** `spawnSync` makes a standard output that it shares block again. */
async function startAnother(kind: Kind) {
  const { told, exited } = runUnread(
    kind,
    `
    const { spawnSync } = await import('node:child_process');
    logger.info('the first');
    spawnSync('true', { stdio: ['ignore', 'inherit', 'inherit'] });
    const pad = 'x'.repeat(1000);
    for (let n = 0; n < 1000; n++) logger.info({ n, pad });
    process.send(1);
    process.exit(0);`,
  );
  expect(await told).toBe(1);
  expect(await exited).toBe(0);
}

async function exitUnread(kind: Kind) {
  const { exited } = runUnread(
    kind,
    `
    const pad = 'x'.repeat(1000);
    for (let n = 0; n < 1000; n++) logger.info({ n, pad });
    process.exit(3);`,
  );
  expect(await exited).toBe(3);
}

async function writeVeryMany(kind: Kind) {
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
  // An exit waits only a little for its reader.
  await until(() => output.text().endsWith(`"n":${LINES - 1}}\n`));
  child.send('exit');
  expect(await exited).toBe(3);
  await output.ended;
  const lines = output.text().trimEnd().split('\n');
  expect(lines).toHaveLength(LINES);
  expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ n: LINES - 1 });
}
