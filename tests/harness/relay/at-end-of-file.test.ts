import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, jest, test } from '@jest/globals';
import { until } from '../clock/until.ts';
import { ROOT } from '../documents/sources.ts';
import { describeWithRedis } from '../redis/redis.ts';

jest.setTimeout(60_000);

/** Runs one file as a test file; resolves with all that Jest has printed. */
function printedBy(file: string): Promise<string> {
  const jest = ['--experimental-vm-modules', 'node_modules/jest/bin/jest.js'];
  const words = [...jest, '--runInBand', '--testMatch', join(ROOT, file)];
  return new Promise((resolve) => {
    execFile(process.execPath, words, { cwd: ROOT }, (_error, out, err) => resolve(out + err));
  });
}

/** Whether nothing listens at the port. */
async function refuses(port: number): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1' });
  const error = await once(socket, 'connect').then(
    () => undefined,
    (thrown) => thrown,
  );
  socket.destroy();
  return error?.code === 'ECONNREFUSED';
}

/** A process that has ended has no command line, even before its exit code was read. */
function lives(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}

describeWithRedis('a test file that fails', () => {
  test('leaves no Redis server and no process of the relay behind', async () => {
    const printed = await printedBy('tests/harness/relay/leaves-processes.ts');
    expect(printed).toContain('on purpose');
    const { port, pid } = JSON.parse(/^left: (.*)$/m.exec(printed)?.[1] ?? '') as Record<string, number>;
    // The system ends them a moment after they are told.
    await until(() => refuses(port as number), 20);
    await until(() => !lives(pid as number), 20);
  });
});
