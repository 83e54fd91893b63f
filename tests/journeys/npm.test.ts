import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { ROOT } from '../harness/documents/sources.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));

let group: number | undefined;
afterEach(async () => {
  try {
    if (group !== undefined) process.kill(-group, 'SIGKILL');
  } catch {
    // It has already ended, as expected.
  }
  group = undefined;
  await stopProcesses();
});

describe('under npm', () => {
  test('the relay shuts down when a signal ends the shell between it and npm', async () => {
    // Like npm: a shell runs the command, and only the shell gets the signal.
    const shell = spawn('/bin/sh', ['-c', `"${process.execPath}" "${MAIN}"; true`], {
      cwd: freshFolder({ 'users.json': '{"users":[]}' }),
      env: { PORT: '0', npm_lifecycle_event: 'start' },
      // In its own process group, so that nothing outlives a failed test.
      detached: true,
    });
    group = shell.pid as number;
    let printed = '';
    shell.stdout.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
      if (text.includes('"listening"')) shell.kill('SIGTERM');
    });
    // The output ends when all its writers have ended, also the relay.
    await new Promise((resolve) => shell.stdout.once('end', resolve));
    expect(printed).toMatch(/"signal":"parent gone","openMessages":0,"msg":"shutting down"/);
    expect(printed).toMatch(/"msg":"stopped"\}\n$/);
  });
});

test.each(['user', 'keys', 'channel-id', 'check'])(
  'npm run %s compiles nothing beneath a relay that runs',
  (name) => {
    const folder = freshFolder();
    for (const one of ['dist', 'node_modules']) symlinkSync(join(ROOT, one), join(folder, one));
    const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const scripts = { ...manifest.scripts, build: 'echo it compiles' };
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...manifest, scripts }));
    const said = execFileSync('npm', ['run', name, '--', '--help'], { cwd: folder, encoding: 'utf8' });
    expect(said).toContain('Usage: ');
    expect(said).not.toContain('it compiles');
  },
);
