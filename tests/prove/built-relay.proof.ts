import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';
import { describeWithRedis } from '../harness/redis/redis.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Tests of the gate that know a relay by its ports, its log and its metrics alone. */
const BLACK_BOX = [
  'guard/client-limits',
  'guard/conversations',
  'guard/origins',
  'guard/texts-of-clients',
  'relay/heartbeats',
  'relay/operations/downloads',
  'relay/operations/every-operation',
  'relay/operations/json-operations',
  'relay/service-connections',
  'relay/what-goes-upstream',
];

/** A name that does not fit into a header comes from an identity provider, and is in no file of users. */
const OTHERS = '^(?!.*a user who does not fit)';

describeWithRedis('the built relay, as a process with a Redis of its own', () => {
  test('passes the tests of the gate that know it from outside alone', async () => {
    const files = BLACK_BOX.map((name) => `tests/${name}.test.ts`);
    const args = ['node_modules/jest/bin/jest.js', '--testNamePattern', OTHERS, '--runTestsByPath', ...files];
    const env = { ...process.env, BUILT_RELAY: 'on' };
    const jest = spawn(process.execPath, ['--experimental-vm-modules', ...args], {
      cwd: ROOT,
      env,
      stdio: 'inherit',
    });
    expect(await once(jest, 'exit')).toEqual([0, null]);
  }, 1_200_000);
});
