import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../support/call.ts';
import { freshFolder, startProcess, stopProcesses } from '../support/process.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
const JSON_TYPE = { 'Content-Type': 'application/json' };

const hasCurl = spawnSync('curl', ['--version']).status === 0;
if (!hasCurl) process.stderr.write('Tests with curl are skipped; to run them: apt-get install curl\n');
const testWithCurl = hasCurl ? test : test.skip;

afterEach(() => stopProcesses());

async function startDemo() {
  return startProcess({ environment: { PORT: '0', AUTH_MODE: 'guest' } }).listening();
}

/** The commands below the README's heading about guests, for a relay on `port`. */
function commands(port: number): string {
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
  const [, section = ''] = readme.split('\n### As a guest\n');
  const found = section.split('\n## ', 1)[0]?.match(/^curl .*$/gm) ?? [];
  expect(found).toHaveLength(2);
  return found.join(' && echo && ').replaceAll('localhost:3000', `127.0.0.1:${port}`);
}

describe('the demo for guests', () => {
  testWithCurl("answers the README's commands as they are", async () => {
    const port = await startDemo();
    const { status, stdout } = spawnSync('sh', ['-c', commands(port)], {
      cwd: freshFolder(),
      encoding: 'utf8',
    });
    expect(status).toBe(0);
    const [guest = '', ...stream] = stdout.split('\n');
    expect(JSON.parse(guest)).toMatchObject({
      user: { id: expect.stringMatching(/^guest:[0-9a-f-]{36}$/), name: 'Guest' },
    });
    expect(stream.join('\n')).toMatch(/"text":"You said: Hello, who am I\?"[\s\S]*asgard\.run\.done/);
  });

  test('lets no message in without a guest session, and no password either', async () => {
    const port = await startDemo();
    const answer = await call(port, ECHO, { method: 'POST', headers: JSON_TYPE, body: '{"text":"hello"}' });
    expectProblem(answer, 401, 'unauthenticated');
    expect(answer.headers['set-cookie']).toBeUndefined();
    const body = JSON.stringify({ username: 'demo', password: 'demo' });
    expectProblem(
      await call(port, '/auth/login', { method: 'POST', headers: JSON_TYPE, body }),
      404,
      'not_found',
    );
  });
});
