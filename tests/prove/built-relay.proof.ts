import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from '@jest/globals';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { startRelay } from '../harness/relay/relay.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/**
 * Files of the gate that know a relay only by its ports, its log and its metrics. They use no `parts`, no `limits`, no
 * mock and no stopped clock for it, and no users but USER and OTHER_USER.
 */
const BLACK_BOX = [
  'guard/client-limits',
  'guard/conversations',
  'guard/origins',
  'guard/texts-of-clients',
  'relay/heartbeats',
  'relay/operations/downloads',
  'relay/operations/every-operation',
  'relay/operations/json-operations',
  'relay/what-goes-upstream',
];

/** Leaves out the user whose name is too long for a header: no file of users can have that name. */
const WITHOUT_LONG_NAME = '^(?!.*a user who does not fit)';

afterEach(() => {
  Reflect.deleteProperty(process.env, 'BUILT_RELAY');
});

describeWithRedis('the built relay, as a process with a Redis of its own', () => {
  test('is what `startRelay` starts if BUILT_RELAY is set', async () => {
    process.env.BUILT_RELAY = 'on';
    const relay = await startRelay('http://127.0.0.1:1');
    expect(() => relay.parts).toThrow('a process of its own');
    await relay.signIn();
    await relay.close();
  });

  test('passes the files of the gate that know a relay only from outside', async () => {
    const files = BLACK_BOX.map((name) => `tests/${name}.test.ts`);
    const args = [
      ...['--experimental-vm-modules', 'node_modules/jest/bin/jest.js', '--maxWorkers=2'],
      ...['--testNamePattern', WITHOUT_LONG_NAME, '--runTestsByPath', ...files],
    ];
    const env = { ...process.env, BUILT_RELAY: 'on' };
    const jest = spawn(process.execPath, args, { cwd: ROOT, env, stdio: 'inherit' });
    expect(await once(jest, 'exit')).toEqual([0, null]);
  }, 1_200_000);
});
