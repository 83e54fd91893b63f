import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import {
  freshFolder,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
} from '../harness/relay/process.ts';
import { CANARY, MESSAGE, USER } from '../harness/relay/relay.ts';
import { setKeyEnabled } from '../harness/service/settings-file.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
const GUIDE = ECHO.replace('echo', 'guide');

let service: BotService;
let folder: string;
const secrets: string[] = [];
beforeAll(async () => {
  service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 0 } });
  folder = await prepareFolder();
  await Promise.all([start('plain'), start('elsewhere')]);
});
afterAll(async () => {
  await service.close();
  await stopProcesses(secrets);
});

/** Makes a folder as an operator does: with a user, a file of keys, and a `.env`. */
async function prepareFolder(): Promise<string> {
  const folder = freshFolder({
    keys: `${CANARY.key}\n`,
    '.env': `PORT=0\nHOST=127.0.0.1\nUPSTREAM_BASE_URL=${service.url}\nUPSTREAM_API_KEYS_FILE=keys
BOTS=demo/guide\nSESSION_SECRETS="${CANARY.sessionSecret}"\nCHANNEL_SECRET="${CANARY.channelSecret}"\nUSERS_FILE=people.json\n`,
  });
  const add = startProcess({ folder, args: ['user', 'add', USER.name], input: `${USER.password}\n` });
  expect(await add.exited).toEqual({ code: 0, signal: null });
  expect(add.stdout()).toBe('ada can sign in now (people.json).\n');
  return folder;
}

/** What the environment of each relay sets besides the `.env` that they share. */
const ENVIRONMENTS = {
  plain: {},
  elsewhere: { BOTS: 'demo/echo', NODE_ENV: 'production', PUBLIC_URL: 'https://chat.example.com' },
};
type Name = keyof typeof ENVIRONMENTS;
const started = new Map<Name, { relay: RelayProcess; port: number }>();

async function start(name: Name): Promise<void> {
  const relay = startProcess({ folder, environment: ENVIRONMENTS[name] });
  started.set(name, { relay, port: await relay.listening() });
}

const running = (name: Name) => started.get(name) as { relay: RelayProcess; port: number };

async function signIn(port: number): Promise<string> {
  const cookie = await signInAt(port, USER.name, USER.password);
  secrets.push(cookie.slice(cookie.indexOf('=') + 1));
  return cookie;
}

const post = (port: number, path: string, cookie: string) =>
  call(port, path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie: cookie },
    body: MESSAGE,
  });

describe('the relay in front of a bot service', () => {
  test.each<[Name, RegExp[]]>([
    ['plain', [/^PUBLIC_URL is not https/]],
    ['elsewhere', [/^REDIS_URL is not set/, /^TRUST_PROXY is not set/]],
  ])('warns of the risks of its configuration and no others: %s', async (name, warnings) => {
    const { relay, port } = running(name);
    // It answers only after it has logged its warnings.
    await call(port, '/auth/session');
    await relay.waitFor(/"msg":"request"/);
    const logged = relay.stdout().matchAll(/^\{"level":"warn",.*"msg":"([^"]*)"\}$/gm);
    expect([...logged].map(([, msg]) => msg)).toEqual(warnings.map((one) => expect.stringMatching(one)));
  });

  test('sends the message of a user of its users file, with the key of its file', async () => {
    const { relay, port } = running('plain');
    expect(relay.stdout()).toContain('"demo":false');
    expect(relay.stdout()).not.toContain('demo mode');
    expect(await call(port, '/readyz')).toMatchObject({ status: 200 });
    await expect(signInAt(port, 'demo', 'demo')).rejects.toThrow('401');

    const cookie = await signIn(port);
    const answer = await post(port, GUIDE, cookie);
    expect(answer.status).toBe(200);
    expect(answer.body).toMatch(/^event: asgard\.run\.init\n.*event: asgard\.run\.done\n.*\n\n$/s);
    expectProblem(await post(port, ECHO, cookie), 404, 'unknown_bot');
  });

  test('reads from .env only variables that the environment does not set', async () => {
    const { port } = running('elsewhere');
    const cookie = await signIn(port);
    expect((await post(port, ECHO, cookie)).status).toBe(200);
    expectProblem(await post(port, GUIDE, cookie), 404, 'unknown_bot');
  });

  test('says that the bot service rejects its key, and shows it nowhere', async () => {
    const { relay, port } = running('plain');
    setKeyEnabled(service, CANARY.key, false);
    const answer = await post(port, GUIDE, await signIn(port));
    expectErrorEvent(answer, 502, 'upstream_key_rejected', { retryable: 'new message' });
    // The request is in the log, which the scan at the end reads.
    await relay.waitFor(/"outcome":"upstream_key_rejected"/);
  });

  test('keeps its users while their file cannot be used, and logs this', async () => {
    const { relay, port } = running('plain');
    writeFileSync(join(folder, 'people.json'), '{');
    await signIn(port);
    await relay.waitFor(/"level":"error".*people\.json cannot be used.*"msg":"users file not used"/);
  });
});
