import { afterAll, beforeAll, describe, expect } from '@jest/globals';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import {
  type FakeLoadBalancer,
  selfSigned,
  startFakeLoadBalancer,
} from '../harness/faults/fake-load-balancer.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { checkEnvironment, type Row } from '../harness/relay/check.ts';
import { type Ran, runCommand, stopCommands } from '../harness/relay/commands.ts';
import { freshFolder, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY, startRelay, USER } from '../harness/relay/relay.ts';

/** The demo's bot service behind TLS, with a certificate that no CA of the machine has signed. */
let tls: FakeLoadBalancer;
let certificate: string;
const services: BotService[] = [];
beforeAll(async () => {
  const identity = selfSigned();
  certificate = identity.cert;
  tls = await startFakeLoadBalancer({ identity });
  tls.forwardTo(Number((await startService()).url.port));
});
afterAll(async () => {
  await tls.close();
  for (const service of services) await service.close();
  stopRedis();
  await stopCommands();
  await stopProcesses();
});

async function startService(): Promise<BotService> {
  const service = await startBotService({ keys: [CANARY.key], limit: 100, speed: { wordMs: 40 } });
  services.push(service);
  return service;
}

const behindTls = (more: Record<string, string> = {}) =>
  checkEnvironment(tls.url, { BOTS: 'demo/echo', ...more });
const check = (args: string[], environment: Record<string, string>, folder = freshFolder()) =>
  runCommand({ args: ['check', ...args], environment, folder });

function rowsOf({ code, stdout }: Pick<Ran, 'code' | 'stdout'>) {
  const { findings } = JSON.parse(stdout) as { findings: Row[] };
  const row = (name: string) => findings.find(({ check }) => check === name);
  return { code, findings, row };
}

async function trustsCa(): Promise<void> {
  const caFile = `${freshFolder({ 'ca.pem': certificate })}/ca.pem`;
  // Node.js reads this variable only when a process starts.
  const environment = behindTls({ NODE_EXTRA_CA_CERTS: caFile });
  const relay = startProcess({ args: ['check'], environment });
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  expect(relay.stdout()).toMatch(/^ok {7}TLS +127\.0\.0\.1:\d+ +connected to 127\.0\.0\.1 in \d+ ms, TLSv1/m);
  expect(relay.stdout()).toMatch(/^ok {7}key +demo\/echo [0-9a-f]{8} {2}works$/m);
  expect(relay.stdout()).toMatch(/\n\nNo problem found\. 2 messages sent; each was a run of a bot\.\n$/);
  expect(relay.stderr()).toMatch(/^Sending up to 2 messages, each a run/);
}

async function verificationOff(): Promise<void> {
  const environment = behindTls({ NODE_TLS_REJECT_UNAUTHORIZED: '0' });
  const { code, findings } = rowsOf(await check(['--json', '--no-messages'], environment));
  expect(code).toBe(1);
  expect(findings.filter(({ state }) => state === 'problem')).toEqual([
    expect.objectContaining({ says: expect.stringContaining('NODE_TLS_REJECT_UNAUTHORIZED=0') }),
  ]);
}

/** One check after the other through one relay. Only the first one sends messages, which saves time. */
async function passwords(): Promise<void> {
  const service = await startService();
  const front = await startFakeLoadBalancer();
  const environment = checkEnvironment(service.url, { BOTS: 'demo/echo', PUBLIC_URL: front.url });
  const relay = await startRelay(service.url, environment);
  front.forwardTo(relay.port);
  const folder = freshFolder({ password: `${CANARY.password}\n` });
  const signsIn = async (args: string[], more: Record<string, string>) => {
    const through = ['--json', '--through', front.url, '--user', USER.name, ...args];
    const { code, row } = rowsOf(await check(through, { ...environment, ...more }, folder));
    expect(row('sign-in')?.state).toBe('ok');
    expect(code).toBe(0);
  };
  try {
    await signsIn(['--text', 'Hi'], { CHECK_PASSWORD: CANARY.password });
    await signsIn(['--no-messages', '--password-file', 'password'], {});
  } finally {
    await relay.close();
    await front.close();
  }
}

async function wrongConfiguration(): Promise<void> {
  const environment = { ...checkEnvironment('http://127.0.0.1:9'), PORT: CANARY.text, RATE_LIMIT: 'five' };
  const { code, findings } = rowsOf(await check(['--json'], environment));
  expect(code).toBe(78);
  expect(findings.map(({ state, check, says }) => [state, check, says])).toEqual([
    ['problem', 'configuration', 'PORT must be a whole number from 0 to 65535'],
    ['problem', 'configuration', 'RATE_LIMIT must be a whole number from 1 to 1000000'],
  ]);
}

async function missingUsers(): Promise<void> {
  const environment = { ...checkEnvironment('http://127.0.0.1:9'), USERS_FILE: 'missing.json' };
  const { code, row } = rowsOf(await check(['--json'], environment));
  expect(code).toBe(78);
  expect(row('users')).toMatchObject({ state: 'problem', says: expect.stringContaining('missing.json') });
  expect(row('connection')).toMatchObject({ state: 'problem' });
}

describe('bot-relay check', () => {
  testSideBySide(
    [
      ['signs in through the load balancer with a password of the environment, and of a file', passwords],
      ['trusts the CA that NODE_EXTRA_CA_CERTS names, prints a table and exits 0', trustsCa],
      ['reports a problem if verification is turned off', verificationOff],
      ['exits 78 with all that is wrong with the configuration', wrongConfiguration],
      ['exits 78 without a users file, and checks the rest', missingUsers],
    ],
    4,
  );
});

type RedisCase = [what: string, options: string[], urlOf: (url: string) => string, cause: string];
const REDIS: RedisCase[] = [
  ['cannot be reached', [], () => `redis://user:${CANARY.secondKey}@127.0.0.1:9`, 'ECONNREFUSED'],
  [
    'has another password',
    ['--requirepass', 'x'],
    (url) => url.replace('//', `//:${CANARY.key}@`),
    'WRONGPASS',
  ],
  ['is a replica', ['--replicaof', '127.0.0.1 9'], (url) => url, 'READONLY'],
  ['does not use TLS', [], (url) => url.replace('redis:', 'rediss:'), '\\w+'],
];

/** Runs the check as a process of its own, which must end by itself. */
async function checkAlone(
  args: string[],
  environment: Record<string, string>,
): Promise<Pick<Ran, 'code' | 'stdout'>> {
  const relay = startProcess({ args: ['check', ...args], environment });
  const { code } = await relay.exited;
  return { code: Number(code), stdout: relay.stdout() };
}

async function expectRedisProblem(
  [, options, urlOf, cause]: RedisCase,
  run: typeof checkAlone,
): Promise<void> {
  const { url } = await startRedis(...options);
  const environment = checkEnvironment('http://127.0.0.1:9', { REDIS_URL: urlOf(url) });
  const { code, row } = rowsOf(await run(['--json'], environment));
  expect(code).toBe(1);
  expect(row('Redis')).toMatchObject({
    state: 'problem',
    says: expect.stringMatching(`^cannot be used \\((${cause})\\)$`),
    advice: expect.not.stringMatching(/^Look at the host, the port and the network/),
  });
}

describeWithRedis('bot-relay check, of Redis', () => {
  testSideBySide(
    REDIS.map((one, index) => [
      `reports a problem if it ${one[0]}`,
      () => expectRedisProblem(one, index === 0 ? checkAlone : check),
    ]),
  );
});
