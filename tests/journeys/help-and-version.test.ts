import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { samplesOf } from '../harness/relay/metric-samples.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
/** With this environment, no relay starts. */
const WRONG = { PORT: 'none', UPSTREAM_BASE_URL: 'none' };

/** Each command has its own usage, or none. The flag may follow other arguments. */
const USAGES: [string[], RegExp][] = [
  [['--help'], /^Usage: bot-relay +run the relay\n[\s\S]*--help[\s\S]*--version/],
  [['--check-config', '-h'], /^Usage: bot-relay +run the relay\n/],
  [['user', '-h'], /^Usage: bot-relay user add NAME/],
  [['user', 'add', '--help'], /^Usage: bot-relay user add NAME/],
  [['keys', '--json', '-h'], /^Usage: bot-relay keys/],
  [['channel-id', '--user', 'ada', '-h'], /^Usage: bot-relay channel-id --user USER --id ID/],
  [['check', '--no-messages', '--help'], /^Usage: bot-relay check \[options\]/],
  [['service', '-h'], /^Usage: bot-relay service \[--keys-file FILE\]/],
  [['service', 'keys', 'delete', 'x', '--help'], /^Usage: bot-relay service \[--keys-file FILE\]/],
];
/** The version is the same for all commands. */
const VERSIONS = [['--version'], ['-v'], ['--check-config', '-v'], ['check', '--no-messages', '--version']];

afterAll(async () => {
  await stopCommands();
  await stopProcesses();
});

/** The output of a command that must exit with 0, whatever its configuration. */
async function printed(args: string[]): Promise<string> {
  const { stdout, ...others } = await runCommand({ args, environment: WRONG });
  expect(others).toEqual({ code: 0, stderr: '' });
  return stdout;
}

async function startsNothing(): Promise<void> {
  const relay = startProcess({ args: ['--version'], environment: WRONG });
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  expect(relay.stdout() + relay.stderr()).toBe(`${version}\n`);
}

describe('on standard output', () => {
  testSideBySide(
    [
      ...USAGES.map(([args, usage]): [string, () => Promise<void>] => [
        `${JSON.stringify(args)} prints the usage`,
        async () => expect(await printed(args)).toMatch(usage),
      ]),
      ...VERSIONS.map((args): [string, () => Promise<void>] => [
        `${JSON.stringify(args)} prints the version`,
        async () => expect(await printed(args)).toBe(`${version}\n`),
      ]),
      ['a process prints the version, and ends', startsNothing],
    ],
    3,
  );
});

test('the log and the metrics tell the version of package.json and the commit of the build', async () => {
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
