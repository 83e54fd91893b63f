import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type FileChanges, fileChanges } from '../../src/bots/file-changes.ts';
import { ALL_BUT_INTERVALS } from '../harness/clock/intervals.ts';
import { until } from '../harness/clock/until.ts';

const POLL_MS = 60;

let folder: string;
let path: string;
let seen: string[];
let changes: FileChanges;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-changes-'));
  path = join(folder, 'keys');
  writeFileSync(path, 'old');
  seen = [];
});
afterEach(() => {
  changes.close();
  jest.useRealTimers();
  rmSync(folder, { recursive: true });
});

/** The content of the file, or why it cannot be read. */
function content(): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? '';
  }
}

function begin(): void {
  changes = fileChanges({
    files: () => [path],
    onChange: () => void seen.push(content()),
    pollEveryMs: POLL_MS,
  });
}

/** Watches the file, and says when it is looked at. */
function watchByHand(): void {
  jest.useFakeTimers({ doNotFake: [...ALL_BUT_INTERVALS] });
  begin();
  jest.advanceTimersByTime(2 * POLL_MS);
  expect(seen).toEqual(['old']);
}

/** Watches the file, and resolves once it has been read for the first time. */
async function watch(): Promise<void> {
  begin();
  await until(() => seen.length === 1);
  seen = [];
}

describe('a file is read again', () => {
  test('when it is written in place', async () => {
    await watch();
    writeFileSync(path, 'new');
    await until(() => seen.length > 0);
    expect(seen).toEqual(['new']);
  });

  test('when it is replaced by a rename, several times', async () => {
    await watch();
    for (const text of ['one', 'two', 'six']) {
      writeFileSync(`${path}.tmp`, text);
      renameSync(`${path}.tmp`, path);
      await until(() => seen.at(-1) === text);
    }
    expect(seen).toEqual(['one', 'two', 'six']);
  });

  test('when its folder is replaced behind a symbolic link, as in Kubernetes', async () => {
    const put = (version: string, text: string) => {
      mkdirSync(join(folder, version));
      writeFileSync(join(folder, version, 'keys'), text);
      symlinkSync(version, join(folder, '..data_tmp'));
      renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
    };
    unlinkSync(path);
    put('..2026_01', 'old');
    symlinkSync('..data/keys', path);
    await watch();
    for (const [version, text] of [
      ['..2026_02', 'new'],
      ['..2026_03', 'one'],
    ] as const) {
      put(version, text);
      await until(() => seen.at(-1) === text);
    }
    expect(seen).toEqual(['new', 'one']);
  });

  test('when it is deleted, and when it is created again', async () => {
    await watch();
    unlinkSync(path);
    await until(() => seen.length > 0);
    writeFileSync(path, 'back');
    await until(() => seen.length > 1);
    expect(seen).toEqual(['ENOENT', 'back']);
  });

  test('when it was changed before the first poll', async () => {
    begin();
    writeFileSync(path, 'new');
    await until(() => seen.length > 0);
    expect(seen).toEqual(['new']);
  });

  test('at once by readNow, changed or not', () => {
    watchByHand();
    changes.readNow();
    expect(seen).toEqual(['old', 'old']);
    writeFileSync(path, 'new');
    changes.readNow();
    // The same change causes no second read.
    jest.advanceTimersByTime(4 * POLL_MS);
    expect(seen).toEqual(['old', 'old', 'new']);
  });

  test('when it was added to the files later', async () => {
    const other = join(folder, 'other');
    writeFileSync(other, '1');
    let files = [path];
    let reads = 0;
    changes = fileChanges({ files: () => files, onChange: () => void reads++, pollEveryMs: POLL_MS });
    await until(() => reads === 1);
    files = [path, other];
    await until(() => reads === 2);
    writeFileSync(other, '2');
    await until(() => reads === 3);
  });
});

describe('a file is not read', () => {
  test('while it is being written', () => {
    watchByHand();
    writeFileSync(path, '');
    for (const part of 'half-written'.split('')) {
      jest.advanceTimersByTime(POLL_MS);
      appendFileSync(path, part);
    }
    jest.advanceTimersByTime(POLL_MS);
    expect(seen).toEqual(['old']);
    jest.advanceTimersByTime(POLL_MS);
    expect(seen).toEqual(['old', 'half-written']);
  });

  test('when nothing has changed', () => {
    watchByHand();
    jest.advanceTimersByTime(5 * POLL_MS);
    expect(seen).toEqual(['old']);
  });

  test('after the watcher was closed', () => {
    watchByHand();
    changes.close();
    writeFileSync(path, 'new');
    jest.advanceTimersByTime(4 * POLL_MS);
    expect(seen).toEqual(['old']);
  });
});
