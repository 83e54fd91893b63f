import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { call, expectProblem } from '../support/call.ts';
import { freshFolder, signInAt, startProcess, stopProcesses } from '../support/process.ts';
import { CANARY, MESSAGE, USER } from '../support/relay.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
const GUIDE = ECHO.replace('echo', 'guide');

let service: BotService;
const secrets: string[] = [];
afterEach(async () => {
  await service.close();
  await stopProcesses(secrets.splice(0));
});

/** A folder as an operator prepares it: a user, a file of keys, and a `.env`. */
async function prepareFolder(): Promise<string> {
  service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 0 } });
  const folder = freshFolder({
    keys: `${CANARY.key}\n`,
    '.env': `PORT=0\nHOST=127.0.0.1\nUPSTREAM_BASE_URL=${service.url}\nUPSTREAM_API_KEYS_FILE=keys
BOTS=demo/guide\nSESSION_SECRETS="${CANARY.sessionSecret}"\nUSERS_FILE=people.json\n`,
  });
  const add = startProcess({ folder, args: ['user', 'add', USER.name], input: `${USER.password}\n` });
  expect(await add.exited).toEqual({ code: 0, signal: null });
  expect(add.stdout()).toBe('ada can sign in now (people.json).\n');
  return folder;
}

const post = (port: number, path: string, cookie: string) =>
  call(port, path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie: cookie },
    body: MESSAGE,
  });

describe('the relay in front of a bot service', () => {
  test('carries a message of a user of its file, with the key of its file (O4)', async () => {
    const folder = await prepareFolder();
    const relay = startProcess({ folder });
    const port = await relay.listening();
    expect(relay.stdout()).toContain('"demo":false');
    expect(relay.stdout()).not.toContain('demo mode');
    expect(await call(port, '/readyz')).toMatchObject({ status: 200 });
    await expect(signInAt(port, 'demo', 'demo')).rejects.toThrow('401');

    const cookie = await signInAt(port, USER.name, USER.password);
    secrets.push(cookie.slice(cookie.indexOf('=') + 1));
    const answer = await post(port, GUIDE, cookie);
    expect(answer.status).toBe(200);
    expect(answer.body).toMatch(/^event: asgard\.run\.init\n.*event: asgard\.run\.done\n.*\n\n$/s);
    expectProblem(await post(port, ECHO, cookie), 404, 'unknown_bot');

    service.disableKey(CANARY.key);
    expectProblem(await post(port, GUIDE, cookie), 502, 'upstream_key_rejected');
    // What was asked is in the log, and with it everything that the scan at the end looks through.
    await relay.waitFor(/"outcome":"upstream_key_rejected"/);
  });

  test('keeps its users while their file cannot be used, and says so', async () => {
    const folder = await prepareFolder();
    const relay = startProcess({ folder });
    const port = await relay.listening();
    writeFileSync(join(folder, 'people.json'), '{');
    const cookie = await signInAt(port, USER.name, USER.password);
    secrets.push(cookie.slice(cookie.indexOf('=') + 1));
    await relay.waitFor(/"level":"error".*people\.json cannot be used.*"msg":"users file not used"/);
  });

  test('takes from .env only what the environment does not set', async () => {
    const folder = await prepareFolder();
    const relay = startProcess({ folder, environment: { BOTS: 'demo/echo' } });
    const port = await relay.listening();
    const cookie = await signInAt(port, USER.name, USER.password);
    expect((await post(port, ECHO, cookie)).status).toBe(200);
    expectProblem(await post(port, GUIDE, cookie), 404, 'unknown_bot');
  });

  test('warns of cookies that are not Secure', async () => {
    const folder = await prepareFolder();
    const relay = startProcess({ folder });
    await relay.waitFor(/"level":"warn".*PUBLIC_URL is not https/);
    const https = startProcess({ folder, environment: { PUBLIC_URL: 'https://chat.example.com' } });
    // It answers only once it has said all that it says at its start.
    await call(await https.listening(), '/auth/session');
    await https.waitFor(/"msg":"request"/);
    expect(https.stdout()).not.toContain('PUBLIC_URL is not https');
  });

  test('warns of a load balancer that it has not been told of', async () => {
    const folder = await prepareFolder();
    const PUBLIC_URL = 'https://chat.example.com';
    const untold = startProcess({ folder, environment: { PUBLIC_URL } });
    await untold.waitFor(/"level":"warn".*TRUST_PROXY is not set/);
    const told = startProcess({ folder, environment: { PUBLIC_URL, TRUST_PROXY: '1' } });
    await call(await told.listening(), '/auth/session');
    await told.waitFor(/"msg":"request"/);
    expect(told.stdout()).not.toContain('TRUST_PROXY');
  });

  test('warns of a key in clear text, but not on the way to its own machine', async () => {
    const folder = await prepareFolder();
    const urls = [
      'http://192.0.2.1',
      'https://192.0.2.1',
      'http://localhost:1',
      'http://127.0.0.1:1',
      'http://[::1]:1',
    ];
    const warned = urls.map(async (url) => {
      const relay = startProcess({ folder, environment: { UPSTREAM_BASE_URL: url } });
      await call(await relay.listening(), '/auth/session');
      await relay.waitFor(/"msg":"request"/);
      return /"level":"warn".*UPSTREAM_BASE_URL is not https/.test(relay.stdout());
    });
    expect(await Promise.all(warned)).toEqual([true, false, false, false, false]);
  });
});
