import { spawnSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { loadConfig } from '../../src/config/config.ts';
import { parseDockerfile } from '../harness/documents/dockerfile.ts';
import { longestShutdownMs } from '../harness/relay/longest-shutdown.ts';
import { freshFolder, inFrontOf, startProcess, stopProcesses } from '../harness/relay/process.ts';

afterAll(() => stopProcesses());

const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

const TEMPLATE = read('deploy/bot-relay@.service');

/** What the template says for the instance `name`, in the order of its lines. */
const settingsOf = (name: string) =>
  [...TEMPLATE.matchAll(/^(\w+)=(.*)$/gm)].map(([, key = '', value = '']) => [
    key,
    value.replace(/%i/g, name),
  ]);
const settingOf = (name: string, setting: string) =>
  settingsOf(name).find(([key]) => key === setting)?.[1] ?? '';
const environmentOf = (name: string): Record<string, string> =>
  Object.fromEntries(
    settingOf(name, 'Environment')
      .split(' ')
      .map((one) => one.split('=')),
  );

/** What every instance has in its `.env`. */
const SHARED = {
  ...inFrontOf('https://bots.example.net'),
  PUBLIC_URL: 'https://chat.example.com',
  REDIS_URL: 'redis://127.0.0.1:9',
};
const configOf = (name: string) => loadConfig({ ...SHARED, ...environmentOf(name) });

/** The flags of Node.js in a command: what stands before its program. */
function flagsOf([, ...args]: readonly string[]): readonly string[] {
  return args.slice(
    0,
    args.findIndex((arg) => !arg.startsWith('--')),
  );
}

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;
const HINT = 'apt-get install systemd';
if (!hasSystemd && process.env.CI === 'true') throw new Error(`systemd-analyze is missing: ${HINT}`);
if (!hasSystemd) process.stderr.write(`The test with systemd-analyze is skipped; to run it: ${HINT}\n`);
const testWithSystemd = hasSystemd ? test : test.skip;

describe('deploy/bot-relay@.service', () => {
  test('gives each instance its port, and one for its metrics', () => {
    const [one, other] = [configOf('3001'), configOf('3002')];
    expect([one.host, one.port, one.metricsPort]).toEqual(['127.0.0.1', 3001, 13001]);
    expect([other.host, other.port, other.metricsPort]).toEqual(['127.0.0.1', 3002, 13002]);
    expect(one.production).toBe(true);
  });

  test('leaves an instance its longest shutdown', () => {
    const { shutdown } = configOf('3001');
    expect(Number(settingOf('3001', 'TimeoutStopSec')) * 1000).toBeGreaterThan(longestShutdownMs(shutdown));
  });

  test('starts no instance again whose configuration is wrong', async () => {
    const [, ...args] = settingOf('3001', 'ExecStart').split(' ');
    const environment = { ...environmentOf('3001'), BOTS: 'no bot' };
    const nodeArgs = args.filter((arg) => arg.startsWith('--'));
    expect(args).toEqual([...nodeArgs, 'dist/main.js']);
    const { code } = await startProcess({ environment, nodeArgs }).exited;
    expect(settingOf('3001', 'RestartPreventExitStatus').split(' ')).toContain(String(code));
  });

  testWithSystemd('is what systemd takes', () => {
    const folder = freshFolder();
    const unit = join(folder, 'bot-relay@3001.service');
    // The only lines that need something on this machine.
    const text = TEMPLATE.replace('/usr/bin/node', process.execPath).replace('/opt/bot-relay', folder);
    writeFileSync(unit, text);
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', unit], { encoding: 'utf8' });
    rmSync(unit);
    expect(stderr).toBe('');
    expect(status).toBe(0);
  });
});

test('the flags of Node.js are the same in npm start, in the image and in the template of systemd', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: { start: string } };
  const nodeArgs = flagsOf(scripts.start.split(' '));
  expect(nodeArgs).toHaveLength(3);
  const image = parseDockerfile(read('deploy/Dockerfile')).findLast(
    ({ instruction }) => instruction === 'CMD',
  );
  expect(flagsOf(JSON.parse(image?.text ?? '[]') as string[])).toEqual(nodeArgs);
  expect(flagsOf(settingOf('3001', 'ExecStart').split(' '))).toEqual(nodeArgs);
});
