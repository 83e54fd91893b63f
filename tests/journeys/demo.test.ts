import { spawn, spawnSync } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../support/call.ts';
import { freshFolder, signInAt, startProcess, stopProcesses } from '../support/process.ts';
import { CANARY } from '../support/relay.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';

const hasCurl = spawnSync('curl', ['--version']).status === 0;
if (!hasCurl && process.env.CI === 'true') throw new Error('curl is missing; .ci/run installs it');
if (!hasCurl) console.warn('Skipped: the commands of the demo banner need curl; apt-get install curl');
const testWithCurl = hasCurl ? test : test.skip;

let cookie = '';
beforeEach(() => {
  cookie = '';
});
afterEach(() => stopProcesses(cookie ? [cookie.slice(cookie.indexOf('=') + 1)] : []));

async function startDemo(environment: Record<string, string> = {}) {
  const relay = startProcess({ environment: { PORT: '0', ...environment } });
  const port = await relay.listening();
  return { relay, port };
}

/** Runs a command line as a shell would; resolves with what it printed, piece by piece, when it is over. */
function runInShell(command: string, folder: string) {
  const reads: { text: string; at: number }[] = [];
  const shell = spawn('sh', ['-c', command], { cwd: folder });
  shell.stdout.setEncoding('utf8').on('data', (text) => reads.push({ text, at: performance.now() }));
  return new Promise<{ code: number | null; reads: typeof reads }>((resolve) => {
    shell.once('close', (code) => resolve({ code, reads }));
  });
}

const ask = (port: number, path = ECHO, text: string = CANARY.text) =>
  call(port, path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie: cookie },
    body: JSON.stringify({ text }),
  });

describe('the demo, started with no configuration at all', () => {
  testWithCurl('says in its banner two commands that work as they are, word by word', async () => {
    const { relay, port } = await startDemo();
    await relay.waitFor(/message\/sse\n\n/);
    expect(relay.stdout()).toContain(`bot-relay is running in demo mode: http://localhost:${port}\n`);
    const commands = [...relay.stdout().matchAll(/^ {4}(curl .+)$/gm)].map(
      ([, command]) => command as string,
    );
    expect(commands).toHaveLength(2);
    const [signIn = '', send = ''] = commands;
    const folder = freshFolder();

    const signedIn = await runInShell(signIn, folder);
    expect(signedIn.code).toBe(0);
    expect(JSON.parse(signedIn.reads.map(({ text }) => text).join(''))).toMatchObject({
      user: { id: 'demo', name: 'demo' },
    });

    const { code, reads } = await runInShell(send, folder);
    expect(code).toBe(0);
    const text = reads.map((read) => read.text).join('');
    const said = [...text.matchAll(/"messageDelta":\{"message":\{[^}]*"text":"([^"]*)"/g)].map(
      ([, word]) => word,
    );
    expect(said).toEqual(['You', ' said:', ' Hello,', ' how', ' are', ' you', ' today?']);
    expect(text).toMatch(/event: asgard\.run\.done\ndata: .*\n\n$/);
    // Six pauses of 60 ms lie between the first word and the end.
    const firstWord = reads.findIndex((read) => read.text.includes('messageDelta'));
    expect(reads.length - firstWord).toBeGreaterThan(3);
    expect((reads.at(-1)?.at ?? 0) - (reads[firstWord]?.at ?? 0)).toBeGreaterThan(120);
  });

  test('listens on loopback only', async () => {
    const { relay, port } = await startDemo();
    expect(relay.stdout()).toContain('"host":"127.0.0.1"');
    expect(await call(port, '/healthz')).toMatchObject({ status: 200 });
    // Another address of this machine, which a relay that listens everywhere would answer at.
    await expect(fetch(`http://127.0.0.2:${port}/healthz`)).rejects.toThrow();
  });

  test('takes 5 messages at once and lets the sixth wait for its slot', async () => {
    const { relay, port } = await startDemo();
    cookie = await signInAt(port, 'demo', 'demo');
    const answers = await Promise.all(Array.from({ length: 6 }, () => ask(port)));
    expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
    await relay.waitFor(/("slotWaitMs":[\s\S]*){6}/);
    const logged = relay.stdout().match(/^.*"slotWaitMs".*$/gm) ?? [];
    const startedAt = logged
      .map((line) => JSON.parse(line))
      .map(({ time, durationMs, slotWaitMs }) => Date.parse(time) - durationMs + slotWaitMs)
      .sort((a, b) => a - b);
    // However far apart the six came: the sixth starts a second and the margin of 25 ms behind the first. Without
    // the margin the bot service would send it back, for one second more.
    expect(startedAt).toHaveLength(6);
    const sixthMs = (startedAt[5] as number) - (startedAt[0] as number);
    expect(sixthMs).toBeGreaterThan(1015);
    expect(sixthMs).toBeLessThan(1950);
  });

  test('with RATE_MAX_WAIT_MS=0 tells the sixth when to come again', async () => {
    const { port } = await startDemo({ RATE_MAX_WAIT_MS: '0' });
    cookie = await signInAt(port, 'demo', 'demo');
    const answers = await Promise.all(Array.from({ length: 6 }, () => ask(port)));
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429]);
    const refused = answers.find(({ status }) => status === 429);
    expectProblem(refused as (typeof answers)[0], 429, 'rate_limited');
    expect(refused?.headers['retry-after']).toMatch(/^[12]$/);
  });

  test('has one bot, and says of all others that there is no such bot', async () => {
    const { port } = await startDemo();
    cookie = await signInAt(port, 'demo', 'demo');
    for (const bot of ['guide', 'steps', 'nobody']) {
      expectProblem(await ask(port, ECHO.replace('echo', bot)), 404, 'unknown_bot');
    }
  });

  test('lets nobody in with another password, and no message in without a session', async () => {
    const { port } = await startDemo();
    await expect(signInAt(port, 'demo', CANARY.password)).rejects.toThrow('401');
    expectProblem(await ask(port), 401, 'unauthenticated');
  });
});

describe("the demo with BOTS='demo/*'", () => {
  test('has bots that guide, and that end with an error of the bot service', async () => {
    const { port } = await startDemo({ BOTS: 'demo/*' });
    cookie = await signInAt(port, 'demo', 'demo');
    const [guide, steps, nobody] = await Promise.all(
      ['guide', 'steps', 'nobody'].map((bot) => ask(port, ECHO.replace('echo', bot))),
    );
    expect(guide).toMatchObject({
      status: 200,
      body: expect.stringContaining('The key never left the server.'),
    });
    expect(guide?.body).toMatch(/event: asgard\.run\.done\n.*\n\n$/);
    expect(steps?.status).toBe(200);
    expect(steps?.body.match(/event: asgard\.message\.delta\n/g)).toHaveLength(30);
    expect(steps?.body).toMatch(/event: asgard\.run\.error\ndata: .*"code":"STEP_LIMIT_EXCEEDED".*\n\n$/);
    expect(nobody?.status).toBe(404);
    expect(JSON.parse(nobody?.body ?? '')).toMatchObject({
      code: 'upstream_refused',
      upstream: { error: { code: 'BOT_NOT_FOUND' } },
    });
  });
});
