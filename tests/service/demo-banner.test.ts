import { exec, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test } from '@jest/globals';
import { demoBanner } from '../../src/process/demo.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import { CANARY, startRelay, type TestRelay } from '../harness/relay/relay.ts';

const hasCurl = spawnSync('curl', ['--version']).status === 0;
if (!hasCurl && process.env.CI === 'true') throw new Error('curl is missing; .ci/run installs it');
const testWithCurl = hasCurl ? test : test.skip;
const BASE = 'http://localhost:3000/chat-api';
const BOTS = ['demo/echo'];
const service = { model: undefined };

let running: BotService | undefined;
let relay: TestRelay | undefined;
afterEach(async () => {
  await relay?.close();
  await running?.close();
  await stopProcesses();
});

/** Runs a command line as a shell would; resolves with what it printed. */
const runInShell = async (command: string, cwd: string) => (await promisify(exec)(command, { cwd })).stdout;

const commandsIn = (banner: string) =>
  [...banner.matchAll(/^ {4}(curl .+)$/gm)].map(([, command]) => command);

describe('the banner of the demo', () => {
  test('signs the user of the demo in, with AUTH_MODE=password', () => {
    const banner = demoBanner(BASE, { authMode: 'password', bots: BOTS, service });
    expect(commandsIn(banner)[0]).toContain(`"password":"demo"}' ${BASE}/auth/login`);
  });

  test('names no password, with AUTH_MODE=guest or oidc', () => {
    for (const mode of ['guest', 'oidc'] as const) {
      const banner = demoBanner(BASE, { authMode: mode, bots: BOTS, service });
      expect(banner).toMatch(/^\n {2}bot-relay is running in demo mode: http:\/\/localhost:3000\/chat-api\n/);
      expect(banner).not.toMatch(/password|demo \/ demo|undefined/);
      expect(banner).toContain(`  Open ${BASE}/ in a browser`);
      expect(banner).toMatch(/[^\n]\n\n$/);
    }
  });

  test('says what to register at the provider and has no commands, with AUTH_MODE=oidc', () => {
    const banner = demoBanner(BASE, { authMode: 'oidc', bots: BOTS, service });
    expect(banner).toContain(`${BASE}/auth/callback must be registered`);
    expect(commandsIn(banner)).toEqual([]);
  });

  test.each([
    ['demo/echo', 'demo/echo'],
    ['demo/guide', 'demo/guide'],
    ['acme/helper,demo/guide', 'demo/guide'],
    ['*/guide', 'demo/guide'],
    ['*/*', 'demo/echo'],
    // The demo does not have these bots, but BOTS allows them, so that the refusal can be seen.
    ['acme/helper', 'acme/helper'],
    ['acme/*', 'acme/echo'],
    ['*/helper', 'demo/helper'],
    ["acme/it's-(me)$x", 'acme/it%27s-%28me%29%24x'],
  ])('uses, with BOTS=%s, the bot %s', (patterns, bot) => {
    const [namespace, name] = bot.split('/');
    const [, command] = commandsIn(
      demoBanner(BASE, { authMode: 'guest', bots: patterns.split(','), service }),
    );
    expect(command).toContain(` ${BASE}/generic/ns/${namespace}/bot-provider/${name}/message/sse`);
  });

  testWithCurl.each(['demo/echo', 'acme/helper,demo/guide'])(
    'for guests has two commands that work as they are (BOTS=%s)',
    async (bots) => {
      running = await startBotService({ keys: [CANARY.key], speed: { wordMs: 5 } });
      relay = await startRelay(running.url, { AUTH_MODE: 'guest', BOTS: bots, BASE_PATH: '/chat-api' });
      const commands = commandsIn(
        demoBanner(`${relay.url}/chat-api`, { authMode: 'guest', bots: bots.split(','), service }),
      );
      expect(commands).toHaveLength(2);
      const cwd = freshFolder();
      const come = await runInShell(commands[0] as string, cwd);
      expect(JSON.parse(come)).toMatchObject({ user: { id: expect.stringMatching(/^guest:/) } });
      expect(await runInShell(commands[1] as string, cwd)).toMatch(/event: asgard\.run\.done\n/);
    },
  );
});
