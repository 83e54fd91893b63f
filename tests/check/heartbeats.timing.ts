import { afterAll, expect, test } from '@jest/globals';
import { expectRows, problemsOf } from '../harness/relay/check.ts';
import { checkDeployment } from '../harness/relay/checked-deployment.ts';
import { stopProcesses } from '../harness/relay/process.ts';

afterAll(() => stopProcesses());

test('of a load balancer, the check finds heartbeats if the bot is silent for long enough', async () => {
  const checked = await checkDeployment({ more: { BOTS: 'demo/slow', HEARTBEAT_MS: '100' } });
  expectRows(checked, { heartbeat: [/^ok seen \d+ of them/] });
  expect(problemsOf(checked)).toEqual([]);
});
