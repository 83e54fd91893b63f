import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { freshFolder, startProcess, stopProcesses } from '../support/process.ts';
import { CANARY, MESSAGE } from '../support/relay.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';

afterEach(() => stopProcesses());

/** The bot service as a process, with two keys in its file. */
function startBot(...args: string[]) {
  const folder = freshFolder({ keys: `${CANARY.key}\n${CANARY.secondKey}\n` });
  return startProcess({ folder, args: ['demo-bot', ...args] });
}

const ask = (port: number, key: string) =>
  call(port, ECHO, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-API-KEY': key },
    body: MESSAGE,
  });

describe('the bot service as a process of its own', () => {
  test('answers whoever has a key of its file, at its limit, and stops when it is told to (O4)', async () => {
    const bot = startBot('--keys-file', 'keys', '--port', '0', '--rate-limit', '2');
    const port = await bot.listening();
    expect(bot.stdout()).toContain('"host":"127.0.0.1"');
    const answers = await Promise.all(
      [CANARY.key, CANARY.secondKey, CANARY.key].map((key) => ask(port, key)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 429]);
    expect(answers.find(({ status }) => status === 200)?.body).toMatch(/event: asgard\.run\.done\n.*\n\n$/);
    expect(await ask(port, 'another-key')).toMatchObject({ status: 401 });
    bot.signal('SIGTERM');
    expect(await bot.exited).toEqual({ code: 0, signal: null });
    expect(bot.stderr()).toBe('');
  });

  test('says what is wrong with its arguments', async () => {
    const cases: [RegExp, string[]][] = [
      [/^--keys-file must name a file\nUsage: /, []],
      [/^ENOENT/, ['--keys-file', 'nothing']],
      [/^--port must be a whole number\n/, ['--keys-file', 'keys', '--port', '1x']],
      [/^Unknown option '--hots'/, ['--keys-file', 'keys', '--hots', '0.0.0.0']],
    ];
    for (const [says, args] of cases) {
      const bot = startBot(...args);
      expect(await bot.exited).toEqual({ code: 64, signal: null });
      expect(bot.stderr()).toMatch(says);
    }
  });
});
