import { afterAll, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { freshFolder, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY, MESSAGE } from '../harness/relay/relay.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';

afterAll(async () => {
  await stopCommands();
  await stopProcesses();
});

const KEYS = { keys: `${CANARY.key}\n${CANARY.secondKey}\n` };

const ask = (port: number, key: string) =>
  call(port, ECHO, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-API-KEY': key },
    body: MESSAGE,
  });

describe('the bot service as a process of its own', () => {
  test('accepts the keys of its file, keeps its limit, and stops on a signal', async () => {
    const args = ['demo-bot', '--keys-file', 'keys', '--port', '0', '--rate-limit', '2'];
    const bot = startProcess({ folder: freshFolder(KEYS), args });
    const port = await bot.listening();
    expect(bot.stdout()).toContain('"host":"127.0.0.1"');
    for (const key of [CANARY.key, CANARY.secondKey]) {
      const answered = { status: 200, body: expect.stringMatching(/event: asgard\.run\.done\n.*\n\n$/) };
      expect(await ask(port, key)).toMatchObject(answered);
    }
    expect(await ask(port, 'another-key')).toMatchObject({ status: 401 });
    // Far more than it takes in any second.
    const answers = await Promise.all(Array.from({ length: 100 }, () => ask(port, CANARY.key)));
    const statuses = answers.map(({ status }) => status);
    expect(statuses).toContain(429);
    expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
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
      const ran = await runCommand({ folder: freshFolder(KEYS), args: ['demo-bot', ...args] });
      expect(ran).toMatchObject({ code: 64, stderr: expect.stringMatching(says) });
    }
  });
});
