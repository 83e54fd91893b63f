import { exec, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { demoBanner } from '../../src/demo/start-demo.ts';
import { freshFolder, stopProcesses } from '../support/process.ts';
import { CANARY, startRelay, type TestRelay } from '../support/relay.ts';

const hasCurl = spawnSync('curl', ['--version']).status === 0;
if (!hasCurl && process.env.CI === 'true') throw new Error('curl is missing; .ci/run installs it');
const testWithCurl = hasCurl ? test : test.skip;
const BASE = 'http://localhost:3000/chat-api';

let service: BotService | undefined;
let relay: TestRelay | undefined;
afterEach(async () => {
  await relay?.close();
  await service?.close();
  await stopProcesses();
});

/** Runs a command line as a shell would; resolves with what it printed. */
const runInShell = async (command: string, cwd: string) => (await promisify(exec)(command, { cwd })).stdout;

const commandsIn = (banner: string) =>
  [...banner.matchAll(/^ {4}(curl .+)$/gm)].map(([, command]) => command);

describe('the banner of the demo', () => {
  test('for users with a password is the one without a mode', () => {
    expect(demoBanner(BASE, 'password')).toBe(demoBanner(BASE));
    expect(commandsIn(demoBanner(BASE))[0]).toContain(`"password":"demo"}' ${BASE}/auth/login`);
  });

  test('for guests and for an identity provider speaks of no password', () => {
    for (const mode of ['guest', 'oidc'] as const) {
      const banner = demoBanner(BASE, mode);
      expect(banner).toMatch(/^\n {2}bot-relay is running in demo mode: http:\/\/localhost:3000\/chat-api\n/);
      expect(banner).not.toMatch(/password|demo \/ demo|undefined/);
      expect(banner).toContain(`  Open ${BASE}/ in a browser`);
      expect(banner).toMatch(/[^\n]\n\n$/);
    }
  });

  test('for an identity provider says what to register there, and has no commands, since a browser must sign in', () => {
    const banner = demoBanner(BASE, 'oidc');
    expect(banner).toContain(`${BASE}/auth/callback must be registered`);
    expect(commandsIn(banner)).toEqual([]);
  });

  testWithCurl('for guests has two commands that work as they are', async () => {
    service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 5 } });
    relay = await startRelay(service.url, { AUTH_MODE: 'guest', BOTS: 'demo/echo', BASE_PATH: '/chat-api' });
    const commands = commandsIn(demoBanner(`${relay.url}/chat-api`, 'guest'));
    expect(commands).toHaveLength(2);
    const cwd = freshFolder();
    const come = await runInShell(commands[0] as string, cwd);
    expect(JSON.parse(come)).toMatchObject({ user: { id: expect.stringMatching(/^guest:/) } });
    expect(await runInShell(commands[1] as string, cwd)).toMatch(/event: asgard\.run\.done\n/);
  });
});
