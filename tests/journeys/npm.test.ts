import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { freshFolder, inFrontOf, stopProcesses } from '../support/process.ts';

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
  const workers = { ...inFrontOf('http://127.0.0.1:9'), REDIS_URL: 'redis://127.0.0.1:1', WORKERS: '2' };
  test.each([
    ['the relay shuts down', {}, /"signal":"parent gone","openMessages":0,"msg":"shutting down"/],
    // Also while the second worker is about to start.
    ['several workers shut down', workers, /"signal":"parent gone","workers":2,"msg":"shutting down"/],
  ])('%s when a signal ends the shell between it and npm', async (_who, environment, shutsDown) => {
    // Like npm: a shell runs the command, and only the shell gets the signal.
    const shell = spawn('/bin/sh', ['-c', `"${process.execPath}" "${MAIN}"; true`], {
      cwd: freshFolder({ 'users.json': '{"users":[]}' }),
      env: { PORT: '0', ...environment, npm_lifecycle_event: 'start' },
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
    expect(printed).toMatch(shutsDown);
    expect(printed).toMatch(/"msg":"stopped"\}\n$/);
    expect(printed.match(/"parent gone"/g)?.length).toBe(printed.match(/"msg":"shutting down"/g)?.length);
  });
});
