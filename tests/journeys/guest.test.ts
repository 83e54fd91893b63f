import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { sectionOf } from '../harness/documents/markdown.ts';
import { freshFolder, startProcess, stopProcesses } from '../harness/relay/process.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
const JSON_TYPE = { 'Content-Type': 'application/json' };

const hasCurl = spawnSync('curl', ['--version']).status === 0;
if (!hasCurl) process.stderr.write('Tests with curl are skipped; to run them: apt-get install curl\n');
const testWithCurl = hasCurl ? test : test.skip;

let port: number;
beforeAll(async () => {
  port = await startProcess({ environment: { PORT: '0', AUTH_MODE: 'guest' } }).listening();
});
afterAll(() => stopProcesses());

/** The commands that `docs/sign-in.md` has for guests, for the relay of this test. */
function commands(): string {
  const text = readFileSync(new URL('../../docs/sign-in.md', import.meta.url), 'utf8');
  const found = sectionOf(text, '## As a guest').match(/^curl .*$/gm) ?? [];
  expect(found).toHaveLength(2);
  return found.join(' && echo && ').replaceAll('localhost:3000', `127.0.0.1:${port}`);
}

describe('the demo for guests', () => {
  testWithCurl('answers the documented commands as they are', async () => {
    const { status, stdout } = spawnSync('sh', ['-c', commands()], {
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

  test('refuses messages without a guest session, and passwords', async () => {
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
