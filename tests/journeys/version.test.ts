import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { samplesOf } from '../harness/relay/metric-samples.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';

afterEach(() => stopProcesses());

test('the log and the metrics tell the version of package.json and the commit of the build', async () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const revision = readFileSync(join(ROOT, 'dist/revision.txt'), 'utf8').trim();
  const metricsPort = await freePort();
  const relay = startProcess({ environment: { PORT: '0', METRICS_PORT: String(metricsPort) } });
  await relay.listening();
  const line = /^\{.*"msg":"listening".*$/m.exec(relay.stdout())?.[0] ?? '';
  expect(JSON.parse(line)).toMatchObject({
    version,
    revision: expect.stringMatching(/^([0-9a-f]{12}|unknown)$/),
  });
  const { body } = await call(metricsPort, '/metrics');
  const [sample] = samplesOf(body).filter(({ name }) => name === 'bot_relay_build_info');
  expect(sample).toMatchObject({ labels: { version, revision }, value: 1 });
});
