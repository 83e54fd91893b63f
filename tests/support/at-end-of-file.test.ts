import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { expect, jest, test } from '@jest/globals';
import { oneConnection } from './one-connection.ts';
import { describeWithRedis } from './redis.ts';
import { ROOT } from './sources.ts';
import { until } from './until.ts';
import { lives } from './workers.ts';

jest.setTimeout(60_000);

/** Runs one file as a test file; resolves with all that Jest has printed. */
function printedBy(file: string): Promise<string> {
  const flags = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning'];
  // That of the proofs takes any file.
  const settings = ['--config', 'tests/prove/jest.config.js', '--testMatch', join(ROOT, file)];
  const words = [...flags, 'node_modules/jest/bin/jest.js', '--runInBand', ...settings];
  return new Promise((resolve) => {
    execFile(process.execPath, words, { cwd: ROOT }, (_error, out, err) => resolve(out + err));
  });
}

describeWithRedis('a test file that fails', () => {
  test('leaves no Redis server and no process of the relay behind', async () => {
    const printed = await printedBy('tests/support/leaves-processes.ts');
    expect(printed).toContain('on purpose');
    const { port, pid } = JSON.parse(/^left: (.*)$/m.exec(printed)?.[1] ?? '') as Record<string, number>;
    // The system ends them a moment after they are told.
    await until(async () => (await oneConnection(port as number)) === 'refused', 20);
    await until(() => !lives(pid as number), 20);
  });
});
