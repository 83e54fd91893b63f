import { execFile, spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { parseDockerfile } from '../harness/documents/dockerfile.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const steps = parseDockerfile(readFileSync(join(ROOT, 'deploy/Dockerfile'), 'utf8'));
const last = steps.at(-1)?.stage as string;
/** Long, since packages come from the network. */
const PATIENCE_MS = 180_000;
/** npm takes packages that it has already from its cache, and asks for no advisories. */
const NPM = { npm_config_prefer_offline: 'true', npm_config_audit: 'false', npm_config_fund: 'false' };

/** Has one folder for each stage, in place of its `/app`. */
let stages: string;
const app = (stage: string) => join(stages, stage);

beforeAll(async () => {
  stages = mkdtempSync(join(tmpdir(), 'bot-relay-image-'));
  const names = [...new Set(steps.map(({ stage }) => stage))].filter((stage) => stage !== 'base');
  // A stage is made of those before it.
  for (const name of names) await make(name);
}, PATIENCE_MS);

/** Runs the steps of a stage. */
async function make(name: string): Promise<void> {
  mkdirSync(app(name));
  for (const { stage, instruction, text } of steps) {
    if (stage !== name) continue;
    const [parent = ''] = text.split(' ');
    if (instruction === 'FROM' && parent !== 'base') cpSync(app(parent), app(name), { recursive: true });
    if (instruction === 'COPY') copy(stage, text);
    // The build uses the packages that are installed here. Those of the image are installed as the file says.
    if (instruction === 'RUN' && stage === 'build' && text === 'npm ci') {
      symlinkSync(join(ROOT, 'node_modules'), join(app(stage), 'node_modules'));
    } else if (instruction === 'RUN') {
      // What a step writes elsewhere in the image must not be written on this machine.
      const command = text
        .replaceAll('/app/', `${app(stage)}/`)
        .replaceAll('/usr/local/bin/', `${stages}/`)
        .replace('-o node -g node -m 700 /data', `-m 700 ${stages}/data`);
      await promisify(execFile)('sh', ['-c', command], { cwd: app(stage), env: { ...process.env, ...NPM } });
    }
  }
}

afterAll(async () => {
  rmSync(stages, { recursive: true });
  await stopProcesses();
});

function copy(stage: string, text: string): void {
  const [, from, names = ''] = /^(?:--from=(\S+)\s+)?(.*)$/.exec(text) ?? [];
  const words = names.split(/\s+/);
  const target = words.pop() as string;
  for (const word of words) {
    const source = from ? word.replace('/app', app(from)) : join(ROOT, word);
    const name = target.endsWith('/') ? join(target, word.split('/').at(-1) as string) : target;
    cpSync(source, join(app(stage), name), { recursive: true });
  }
}

const command = (instruction: string) => {
  const text = steps.findLast((step) => step.instruction === instruction)?.text ?? '';
  return (JSON.parse(text.slice(text.indexOf('['))) as string[]).slice(1);
};

describe('the image that deploy/Dockerfile makes', () => {
  test('contains the relay and what it needs to run, and nothing else', () => {
    expect(readdirSync(app(last)).sort()).toEqual([
      'bin',
      'dist',
      'healthcheck.js',
      'node_modules',
      'package.json',
    ]);
    const version = spawnSync(join(stages, 'bot-relay'), ['--version'], { encoding: 'utf8' }).stdout;
    expect(version).toMatch(/^\d+\.\d+\.\d+\n$/);
    const packages = readdirSync(join(app(last), 'node_modules'));
    expect(packages).toContain('express');
    expect(packages).not.toContain('typescript');
    expect(packages).not.toContain('jest');
    expect(packages).not.toContain('ai');
    const withModels = readdirSync(join(app('service'), 'node_modules'));
    expect(withModels.filter((name) => !packages.includes(name))).toEqual(
      expect.arrayContaining(['@ai-sdk', 'ai']),
    );
    expect(withModels).not.toContain('typescript');
  });

  test(
    'starts without a writable folder, is healthy, and stops on a signal',
    async () => {
      const PORT = String(await freePort());
      const secrets = freshFolder({
        keys: CANARY.key,
        session: CANARY.sessionSecret,
        channel: CANARY.channelSecret,
        users: '{"users":[]}',
      });
      const environment = {
        NODE_ENV: 'production',
        PORT,
        PUBLIC_URL: 'https://chat.example.com',
        UPSTREAM_BASE_URL: 'https://bots.example.net',
        UPSTREAM_API_KEYS_FILE: join(secrets, 'keys'),
        SESSION_SECRETS_FILE: join(secrets, 'session'),
        CHANNEL_SECRET_FILE: join(secrets, 'channel'),
        USERS_FILE: join(secrets, 'users'),
        BOTS: 'acme/helper',
        SHUTDOWN_DELAY_MS: '0',
      };
      const options = { cwd: app(last), env: environment };
      expect(spawnSync(process.execPath, command('HEALTHCHECK'), options).status).toBe(1);
      // Makes every attempt to write a file an error, also for root.
      const relay = spawn(
        process.execPath,
        ['--permission', '--allow-fs-read=*', ...command('CMD')],
        options,
      );
      let printed = '';
      const exited = new Promise((resolve) => relay.once('exit', resolve));
      await new Promise((resolve) => {
        const hear = (data: Buffer) => {
          printed += data;
          if (printed.includes('"msg":"listening"')) resolve(undefined);
        };
        relay.stdout.on('data', hear);
        relay.stderr.on('data', hear);
        relay.once('exit', resolve);
      });
      expect(printed).toContain('"msg":"listening"');
      const check = spawn(process.execPath, command('HEALTHCHECK'), options);
      expect(await new Promise((resolve) => check.once('exit', resolve))).toBe(0);
      const served = await fetch(`http://127.0.0.1:${PORT}/client/bot-relay-client.tgz`);
      expect([served.status, served.headers.get('Content-Type')]).toEqual([200, 'application/gzip']);
      relay.kill('SIGTERM');
      expect(await exited).toBe(0);
      expect(printed).not.toContain(CANARY.key);
    },
    PATIENCE_MS,
  );
});
