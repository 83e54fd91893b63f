import { readFileSync } from 'node:fs';
import { afterAll, expect, jest, test } from '@jest/globals';
import { parseDockerfile } from '../support/dockerfile.ts';
import { describeWithRedis } from '../support/redis.ts';
import { startWorkersRelay, stopWorkersRelays, workerPids } from '../support/workers.ts';

jest.setTimeout(60_000);
afterAll(stopWorkersRelays);

const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

/** The flags of Node.js in a command: what stands before its program. */
function flagsOf([, ...args]: readonly string[]): readonly string[] {
  return args.slice(
    0,
    args.findIndex((arg) => !arg.startsWith('--')),
  );
}

const commandOf = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');

describeWithRedis('the flags of Node.js', () => {
  test('are the same in npm start, in the image and in each worker', async () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: { start: string } };
    const nodeArgs = flagsOf(scripts.start.split(' '));
    expect(nodeArgs).toHaveLength(3);
    const image = parseDockerfile(read('deploy/Dockerfile')).findLast(
      ({ instruction }) => instruction === 'CMD',
    );
    expect(flagsOf(JSON.parse(image?.text ?? '[]') as string[])).toEqual(nodeArgs);
    const pids = [...workerPids(await startWorkersRelay({ workers: 2, nodeArgs })).values()];
    expect(pids.map((pid) => flagsOf(commandOf(pid)))).toEqual([nodeArgs, nodeArgs]);
  });
});
