import { spawnSync } from 'node:child_process';
import { expect, jest, test } from '@jest/globals';
import { describeWithRedis } from './redis.ts';

jest.setTimeout(120_000);

const RUN = [
  ...['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', 'node_modules/jest/bin/jest.js'],
  // A server that is left would keep this process, too.
  ...['--config', 'tests/prove/jest.config.js', '--testMatch', '**/fails-with-processes.ts', '--forceExit'],
];

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describeWithRedis('a test that fails before it has ended what it has started', () => {
  test('leaves no process behind', () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, RUN, { encoding: 'utf8' });
    const pids = /^started (\d+) (\d+)$/m.exec(stdout)?.slice(1).map(Number);
    const left = pids?.filter(isThere);
    for (const pid of left ?? []) process.kill(pid, 'SIGKILL');
    expect({ status, left, stderr }).toEqual({
      status: 1,
      left: [],
      stderr: expect.stringContaining('as meant'),
    });
  });
});
