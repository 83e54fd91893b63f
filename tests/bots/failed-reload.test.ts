import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { until } from '../harness/clock/until.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

let folder: string;
let relay: TestRelay | undefined;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-reload-'));
});
afterEach(async () => {
  await relay?.close();
  rmSync(folder, { recursive: true });
});

test('a failed reload is seen in the metrics until it is mended, and names the wrong member', async () => {
  const path = join(folder, 'bots.json');
  const write = (entry: object) => writeFileSync(path, JSON.stringify({ 'acme/helper': entry }));
  write({ rateLimit: 3 });
  relay = await startRelay('http://127.0.0.1:9', { BOTS_FILE: path, METRICS_PORT: '9090' });
  const isValid = async () =>
    total((await relay?.metricsText()) ?? '', 'bot_relay_configuration_valid') === 1;
  expect(await isValid()).toBe(true);
  write({ rateLimit: 3, ratelimits: 4, 'not-a-name-but-a-key': 1 });
  await until(async () => !(await isValid()));
  const { problems } = await relay.logLine(({ msg }) => String(msg).startsWith('reload failed'));
  expect(problems).toEqual([
    'BOTS_FILE: acme/helper has ratelimits, which is not known: an entry has keys or keysFile, rateLimit and operations',
    'BOTS_FILE: acme/helper has a member that is not known: an entry has keys or keysFile, rateLimit and operations',
  ]);
  write({ rateLimit: 4 });
  await until(isValid);
  writeFileSync(path, JSON.stringify({ 'acme/helper': { rateLimit: 4 }, 'acne/*': { rateLimit: 5 } }));
  await until(async () => !(await isValid()));
  expect(relay.logs.at(-1)).toMatchObject({
    problems: ['BOTS_FILE: acne/* is a bot that BOTS does not allow'],
  });
});
