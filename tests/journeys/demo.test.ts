import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sectionOf } from '../harness/documents/markdown.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { freshFolder, signInAt, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';

const hasCurl = spawnSync('curl', ['--version']).status === 0;
if (!hasCurl && process.env.CI === 'true') throw new Error('curl is missing; .ci/run installs it');
if (!hasCurl) console.warn('Left out: the commands of the demo banner need curl; apt-get install curl');

/**
 * On a busy machine, the bot service can refuse the sixth message once, and asks it to wait for one more second. With
 * the default of 2 s, it is then refused if it is 75 ms late.
 */
const PLAIN: Record<string, string> = { RATE_MAX_WAIT_MS: '30000' };

const secrets: string[] = [];
afterAll(() => stopProcesses(secrets));

async function signIn(port: number): Promise<string> {
  const cookie = await signInAt(port, 'demo', 'demo');
  secrets.push(cookie.slice(cookie.indexOf('=') + 1));
  return cookie;
}

async function startDemo(environment: Record<string, string> = {}) {
  const metricsPort = await freePort();
  const relay = startProcess({
    environment: { PORT: '0', METRICS_PORT: String(metricsPort), ...environment },
  });
  const port = await relay.listening();
  return { relay, port, metricsPort };
}

/** Runs a command line in a shell; resolves with its output when it has ended. */
function runInShell(command: string, folder: string) {
  let text = '';
  const shell = spawn('sh', ['-c', command], { cwd: folder });
  shell.stdout.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  return new Promise<{ code: number | null; text: string }>((resolve) => {
    shell.once('close', (code) => resolve({ code, text }));
  });
}

/** Sends the message number `n`. */
const ask = (port: number, cookie: string, { path = ECHO, n = 0 } = {}) =>
  call(port, path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie: cookie },
    body: JSON.stringify({ text: CANARY.text, n }),
  });

type Demo = Awaited<ReturnType<typeof startDemo>>;

async function commandsWork({ relay, port }: Demo): Promise<void> {
  await relay.waitFor(/message\/sse\n\n/);
  expect(relay.stdout()).toContain(`bot-relay is running in demo mode: http://localhost:${port}\n`);
  const commands = [...relay.stdout().matchAll(/^ {4}(curl .+)$/gm)].map(([, command]) => command as string);
  expect(commands).toHaveLength(2);
  const [signIn = '', send = ''] = commands;
  const folder = freshFolder();

  const signedIn = await runInShell(signIn, folder);
  expect(signedIn.code).toBe(0);
  expect(JSON.parse(signedIn.text)).toMatchObject({
    user: { id: 'demo', name: 'demo' },
  });

  const { code, text } = await runInShell(send, folder);
  expect(code).toBe(0);
  const said = [...text.matchAll(/"messageDelta":\{"message":\{[^}]*"text":"([^"]*)"/g)].map(
    ([, word]) => word,
  );
  expect(said).toEqual(['You', ' said:', ' Hello,', ' how', ' are', ' you', ' today?']);
  expect(text).toMatch(/event: asgard\.run\.done\ndata: .*\n\n$/);
}

async function listensOnLoopback({ relay, port }: Demo): Promise<void> {
  expect(relay.stdout()).toContain('"host":"127.0.0.1"');
  expect(await call(port, '/healthz')).toMatchObject({ status: 200 });
  // A relay that listens on all addresses would answer at this one, too.
  await expect(fetch(`http://127.0.0.2:${port}/healthz`)).rejects.toThrow();
}

async function sixthWaits({ port, metricsPort }: Demo): Promise<void> {
  const cookie = await signIn(port);
  const answers = await Promise.all(Array.from({ length: 6 }, (_, n) => ask(port, cookie, { n })));
  expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
  const metrics = (await call(metricsPort, '/metrics')).body;
  expect(total(metrics, 'bot_relay_upstream_responses_total', { outcome: '2xx' })).toBe(6);
}

async function sixthIsRefused({ port }: Demo): Promise<void> {
  const cookie = await signIn(port);
  const answers = await Promise.all(Array.from({ length: 6 }, (_, n) => ask(port, cookie, { n })));
  const statuses = answers.map(({ status }) => status).sort();
  expect(statuses).toEqual([200, 200, 200, 200, 200, 429]);
  const refused = answers.find(({ status }) => status === 429);
  expectProblem(refused as (typeof answers)[0], 429, 'rate_limited');
  expect(refused?.headers['retry-after']).toMatch(/^([1-9]|[12]\d|3[01])$/);
}

async function hasOneBot({ port }: Demo): Promise<void> {
  const cookie = await signIn(port);
  for (const bot of ['guide', 'steps', 'nobody']) {
    expectProblem(await ask(port, cookie, { path: ECHO.replace('echo', bot) }), 404, 'unknown_bot');
  }
}

async function refusesStrangers({ port }: Demo): Promise<void> {
  await expect(signInAt(port, 'demo', CANARY.password)).rejects.toThrow('401');
  expectProblem(await ask(port, ''), 401, 'unauthenticated');
}

async function hasBots({ port }: Demo): Promise<void> {
  const cookie = await signIn(port);
  const [guide, steps, nobody] = await Promise.all(
    ['guide', 'steps', 'nobody'].map((bot) => ask(port, cookie, { path: ECHO.replace('echo', bot) })),
  );
  expect(guide).toMatchObject({
    status: 200,
    body: expect.stringContaining('The key never left the server.'),
  });
  expect(guide?.body).toMatch(/event: asgard\.run\.done\n.*\n\n$/);
  expect(steps?.status).toBe(200);
  expect(steps?.body.match(/event: asgard\.message\.delta\n/g)).toHaveLength(30);
  expect(steps?.body).toMatch(/event: asgard\.run\.error\ndata: .*"code":"STEP_LIMIT_EXCEEDED".*\n\n$/);
  expect(nobody?.status).toBe(200);
  expect(errorEventIn(nobody?.body ?? '')).toMatchObject({
    ...{ code: 'upstream_refused', status: 404 },
    upstream: { error: { code: 'BOT_NOT_FOUND' } },
  });
}

async function hasOnlyGuests({ port }: Demo): Promise<void> {
  const answer = await ask(port, '');
  expectProblem(answer, 401, 'unauthenticated');
  expect(answer.headers['set-cookie']).toBeUndefined();
  await expect(signInAt(port, 'demo', 'demo')).rejects.toThrow('404');
}

/** The commands that `docs/sign-in.md` has for guests. */
async function answersGuest({ port }: Demo): Promise<void> {
  const document = readFileSync(new URL('../../docs/sign-in.md', import.meta.url), 'utf8');
  const found = sectionOf(document, '## As a guest').match(/^curl .*$/gm) ?? [];
  expect(found).toHaveLength(2);
  const commands = found.join(' && echo && ').replaceAll('localhost:3000', `127.0.0.1:${port}`);
  const { code, text } = await runInShell(commands, freshFolder());
  expect(code).toBe(0);
  const [guest = '', ...stream] = text.split('\n');
  expect(JSON.parse(guest)).toMatchObject({
    user: { id: expect.stringMatching(/^guest:[0-9a-f-]{36}$/), name: 'Guest' },
  });
  expect(stream.join('\n')).toMatch(/"text":"You said: Hello, who am I\?"[\s\S]*asgard\.run\.done/);
}

describe('the demo', () => {
  let demos: Demo[] = [];
  beforeAll(async () => {
    // Its cases are of one user, at the same time.
    const several = {
      ...{ BOTS: 'demo/*', MAX_STREAMS_PER_USER: '20' },
      // Far longer than any pause between the first of six messages and the last.
      ...{ RATE_MAX_WAIT_MS: '0', RATE_WINDOW_MS: '30000' },
    };
    demos = await Promise.all([PLAIN, several, { AUTH_MODE: 'guest' }].map(startDemo));
  });
  const plain = () => demos[0] as Demo;
  let sixthHasWaited: Promise<void> | undefined;

  testSideBySide([
    [
      'answers six messages that come at once, though the bot service takes five in a second',
      () => {
        sixthHasWaited = sixthWaits(plain());
        return sixthHasWaited;
      },
    ],
    ['listens on loopback only', () => listensOnLoopback(plain())],
    ['has one bot, and answers that others do not exist', () => hasOneBot(plain())],
    ['refuses another password, and messages without a session', () => refusesStrangers(plain())],
    [
      'tells the sixth message when to try again, with RATE_MAX_WAIT_MS=0',
      () => sixthIsRefused(demos[1] as Demo),
    ],
    [
      "has bots that guide, and that end with an error of the bot service, with BOTS='demo/*'",
      () => hasBots(demos[1] as Demo),
    ],
    ['for guests refuses messages without a session, and passwords', () => hasOnlyGuests(demos[2] as Demo)],
    ...(hasCurl ? [commandsCase(), guestCase()] : []),
  ]);

  function guestCase(): [string, () => Promise<void>] {
    return ['for guests answers the documented commands as they are', () => answersGuest(demos[2] as Demo)];
  }

  /** After the six messages, which need slots of the same bot. */
  function commandsCase(): [string, () => Promise<void>] {
    return [
      'prints two commands that work unchanged',
      async () => {
        await sixthHasWaited;
        await commandsWork(plain());
      },
    ];
  }
});
