import { afterAll, afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { MODEL_FIXTURES, MODEL_KEY } from '../harness/service/model-fixtures.ts';
import { type ModelServer, startModelServer } from '../harness/service/model-server.ts';

const COMPATIBLE = MODEL_FIXTURES.find(({ kind }) => kind === 'openai-compatible');

/** Prints each package for models that a process loads. */
const PRINT_LOADED = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from 'node:module';
  registerHooks({
    resolve(specifier, context, next) {
      const found = next(specifier, context);
      const [, name] = /.*[/]node_modules[/](ai|@ai-sdk[/][^/]+)[/]/.exec(found.url) ?? [];
      if (name) process.stderr.write('loaded ' + name + '\\n');
      return found;
    },
  });`)}`;

let server: ModelServer;
beforeEach(async () => {
  server = await startModelServer();
  server.answer = () => COMPATIBLE?.answer;
});
afterEach(() => server.close());
afterAll(async () => {
  await stopCommands();
  await stopProcesses([MODEL_KEY]);
});

/** The variables with which `npm start` has a model. */
const modelAt = ({ url }: ModelServer) => ({
  SERVICE_MODEL: 'openai-compatible/the-model',
  SERVICE_ENDPOINT: `${url}/v1`,
  OPENAI_COMPATIBLE_API_KEY: MODEL_KEY,
});

/** Starts a process, and prints what it loads for models. */
const start = (environment: Record<string, string>, args: string[] = []) =>
  startProcess({ environment, args, nodeArgs: ['--import', PRINT_LOADED] });

/** Sends a message to `demo/bot` through the relay at `port`, as the user of the demo. */
async function ask(port: number, bot: string): Promise<string> {
  const headers = { 'Content-Type': 'application/json', Cookie: await signInAt(port, 'demo', 'demo') };
  const path = `/generic/ns/demo/bot-provider/${bot}/message/sse`;
  return (await call(port, path, { method: 'POST', headers, body: '{"text":"Hello","customChannelId":"c"}' }))
    .body;
}

const WHOLE = /event: asgard\.message\.complete\n.*"text":"Hello"[\s\S]*event: asgard\.run\.done\n.*\n\n$/;

describe('npm start with SERVICE_MODEL', () => {
  test('has a bot that answers with that model, and a banner that names it and the console', async () => {
    // Another kind's key stays unread: it cannot be one.
    const environment = { ...modelAt(server), SERVICE_CONSOLE_PORT: '0', OPENAI_API_KEY: 'no key' };
    const relay = start({ PORT: '0', ...environment });
    const port = await relay.listening();
    await relay.waitFor(/message\/sse\n\n/);
    expect(relay.stdout()).toContain('  The bot demo/assistant answers with openai-compatible/the-model.\n');
    expect(relay.stdout()).toMatch(/ curl -N .*\/demo\/bot-provider\/assistant\/message\/sse\n/);
    const banner =
      /^ {2}The console of the bot service, for one sign-in: (http:\/\/127\.0\.0\.1:\d+\/sign-in\?token=\S+)$/m;
    const [, link = ''] = await relay.waitFor(banner);
    expect((await fetch(link)).status).toBe(200);
    expect(relay.stderr()).toBe('');

    expect(await ask(port, 'assistant')).toMatch(WHOLE);
    expect(server.requests).toMatchObject([
      {
        path: '/v1/chat/completions',
        headers: { authorization: `Bearer ${MODEL_KEY}` },
        body: { model: 'the-model', messages: [{ role: 'system' }, { role: 'user', content: 'Hello' }] },
      },
    ]);
    expect(relay.stderr()).toMatch(/^loaded ai$/m);
    expect(relay.stderr()).not.toMatch(/^loaded @ai-sdk\/openai$/m);
    expect(await ask(port, 'echo')).toContain('You');
    expect(server.requests).toHaveLength(1);

    // Its log says that the model failed, and how.
    server.answer = () => ({ status: 401, body: '' });
    expect(await ask(port, 'assistant')).toContain('MODEL_KEY_REFUSED');
    const [line] = await relay.waitFor(/^\{.*"model failed"\}$/m);
    const told = { level: 'warn', bot: 'demo/assistant', cause: 'MODEL_KEY_REFUSED' };
    expect(JSON.parse(`${line}`)).toMatchObject(told);
    const log = `${relay.stdout().match(/^\{.*$/gm)}`;
    expect(log).toContain('listening');
    expect(log).not.toContain('token');
  });
});

describe('npm start with SERVICE_DATA', () => {
  test('keeps what the service has for the next start, with the same key of the relay', async () => {
    const file = { SERVICE_DATA: 'service.db', SERVICE_SECRET: 'a-secret-of-the-service-0123456789-XYZ' };
    const folder = freshFolder();
    for (const _ of [1, 2]) {
      const relay = startProcess({ folder, environment: { PORT: '0', ...file } });
      expect(await ask(await relay.listening(), 'echo')).toContain('asgard.run.done');
      relay.signal('SIGTERM');
      expect(await relay.exited).toEqual({ code: 0, signal: null });
    }
    const { stdout } = await runCommand({ args: ['service', 'keys', 'list'], folder, environment: file });
    expect(stdout).toMatch(/^imported [0-9a-f]{8} {3}active .*\n$/);
    const wrong = { ...file, SERVICE_SECRET: `${file.SERVICE_SECRET}!` };
    const refused = startProcess({ folder, environment: { PORT: '0', ...wrong } });
    expect(await refused.exited).toEqual({ code: 78, signal: null });
    expect(refused.stderr()).toBe(
      'SERVICE_SECRET is not the secret with which this database was made. Start with that one.\n',
    );
  });
});

describe('a process without a model', () => {
  test.each(['a demo', 'a relay alone'])('loads no package for models: %s', async (what) => {
    const others = { OPENAI_API_KEY: CANARY.key, ANTHROPIC_API_KEY: CANARY.key };
    const bot =
      what === 'a demo' ? undefined : start({ SERVICE_PORT: '0', SERVICE_CONSOLE_PORT: '0' }, ['service']);
    const upstream = bot && inFrontOf(`http://127.0.0.1:${await bot.listening()}`);
    const relay = start({ PORT: '0', ...upstream, ...others, AUTH_MODE: 'guest', BOTS: 'demo/echo' });
    const port = await relay.listening();
    const guest = await call(port, '/auth/guest', { method: 'POST' });
    expect(guest.status).toBe(200);
    const headers = {
      'Content-Type': 'application/json',
      Cookie: `${guest.headers['set-cookie']}`.split(';', 1)[0],
    };
    const path = '/generic/ns/demo/bot-provider/echo/message/sse';
    const { body } = await call(port, path, { method: 'POST', headers, body: '{"text":"Hello"}' });
    // The service alone does not know the relay's key.
    expect(body).toContain(bot ? 'asgard.run.error' : 'asgard.run.done');
    expect(relay.stderr() + (bot?.stderr() ?? '')).toBe('');
  });
});

describe('bot-relay service test', () => {
  const test_ = (environment: Record<string, string>, ...args: string[]) =>
    runCommand({ args: ['service', 'test', ...args], environment });

  test('asks the model of SERVICE_MODEL for a small answer', async () => {
    const ran = await test_(modelAt(server));
    expect(ran).toMatchObject({ code: 0, stderr: '' });
    expect(ran.stdout).toMatch(
      /^demo\/assistant {3}completion {3}openai-compatible\/the-model {3}works: \d+ ms, 15 tokens\n$/,
    );
  });

  test('says what is wrong and what to do, with exit code 1 and without the key', async () => {
    server.answer = () => COMPATIBLE?.refusal;
    const ran = await test_(modelAt(server), '--json');
    expect(ran).toMatchObject({ code: 1, stderr: '' });
    expect(JSON.parse(ran.stdout)).toEqual([
      {
        ...{ of: 'demo/assistant', role: 'completion', kind: 'openai-compatible', model: 'the-model' },
        ...{ ok: false, code: 'MODEL_KEY_REFUSED', problem: expect.any(String), todo: expect.any(String) },
      },
    ]);
    expect(ran.stdout).not.toContain(MODEL_KEY);
    expect(await test_({})).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^SERVICE_DATA is not set/),
    });
  });
});
