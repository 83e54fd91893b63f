import { afterEach, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { checkEnvironment, type Row } from '../support/check.ts';
import { type Front, selfSigned, startFront } from '../support/front.ts';
import { freshFolder, type RelayProcess, startProcess, stopProcesses } from '../support/process.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { CANARY, startRelay, USER } from '../support/relay.ts';

let service: BotService | undefined;
let front: Front | undefined;
afterEach(async () => {
  await front?.close();
  await service?.close();
  front = service = undefined;
  stopRedis();
  await stopProcesses();
});

const check = (args: string[], environment: Record<string, string>) =>
  startProcess({ args: ['check', ...args], environment });

async function rowsOf(relay: RelayProcess) {
  const { code } = await relay.exited;
  const { findings } = JSON.parse(relay.stdout()) as { findings: Row[] };
  const row = (name: string) => findings.find(({ check }) => check === name);
  return { code, findings, row };
}

/** The embedded bot service behind TLS, whose certificate no CA of the machine has signed. */
async function serviceBehindTls() {
  const identity = selfSigned();
  service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 40 } });
  front = await startFront({ identity });
  front.leadTo(Number(service.url.port));
  const environment = checkEnvironment(front.url, { BOTS: 'demo/echo' });
  return { environment, caFile: `${freshFolder({ 'ca.pem': identity.cert })}/ca.pem` };
}

describe('npm run check', () => {
  test('trusts the CA that NODE_EXTRA_CA_CERTS names, prints a table and exits 0', async () => {
    const { environment, caFile } = await serviceBehindTls();
    const relay = check([], { ...environment, NODE_EXTRA_CA_CERTS: caFile });
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    expect(relay.stdout()).toMatch(
      /^ok {7}TLS +127\.0\.0\.1:\d+ +connected to 127\.0\.0\.1 in \d+ ms, TLSv1/m,
    );
    expect(relay.stdout()).toMatch(/^ok {7}key +demo\/echo [0-9a-f]{8} {2}works$/m);
    expect(relay.stdout()).toMatch(/\n\nNo problem found\. 1 message sent; it was a run of a bot\.\n$/);
    expect(relay.stderr()).toMatch(/^Sending up to 1 message, each a run/);
  });

  test('says what to do about a CA that nobody knows, and exits 1', async () => {
    const { environment } = await serviceBehindTls();
    const { code, row } = await rowsOf(check(['--json'], environment));
    expect(code).toBe(1);
    expect(row('TLS')).toMatchObject({
      state: 'problem',
      says: expect.stringContaining('DEPTH_ZERO_SELF_SIGNED_CERT'),
      advice: expect.stringContaining('NODE_EXTRA_CA_CERTS=ca.pem'),
    });
  });

  test('finds fault with verification that is turned off', async () => {
    const { environment } = await serviceBehindTls();
    const relay = check(['--json', '--no-messages'], { ...environment, NODE_TLS_REJECT_UNAUTHORIZED: '0' });
    const { code, findings } = await rowsOf(relay);
    expect(code).toBe(1);
    expect(findings.filter(({ state }) => state === 'problem')).toEqual([
      expect.objectContaining({ says: expect.stringContaining('NODE_TLS_REJECT_UNAUTHORIZED=0') }),
    ]);
  });

  test.each([
    ['the environment', [], { CHECK_PASSWORD: CANARY.password }],
    ['a file', ['--password-file', 'password'], {}],
  ])('signs in through the load balancer with a password of %s', async (_where, args, more) => {
    service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 40 } });
    front = await startFront();
    const environment = checkEnvironment(service.url, { BOTS: 'demo/echo', PUBLIC_URL: front.url, ...more });
    const relay = await startRelay(service.url, environment);
    front.leadTo(relay.port);
    try {
      const through = ['--json', '--through', front.url, '--user', USER.name, ...args];
      const folder = freshFolder({ password: `${CANARY.password}\n` });
      const { code, row } = await rowsOf(startProcess({ args: ['check', ...through], environment, folder }));
      expect(row('sign-in')?.state).toBe('ok');
      expect(code).toBe(0);
    } finally {
      await relay.close();
    }
  });

  test('exits 78 with all that is wrong with the configuration', async () => {
    const environment = { ...checkEnvironment('http://127.0.0.1:9'), PORT: CANARY.text, RATE_LIMIT: 'five' };
    const { code, findings } = await rowsOf(check(['--json'], environment));
    expect(code).toBe(78);
    expect(findings.map(({ state, check, says }) => [state, check, says])).toEqual([
      ['problem', 'configuration', 'PORT must be a whole number from 0 to 65535'],
      ['problem', 'configuration', 'RATE_LIMIT must be a whole number from 1 to 1000000'],
    ]);
  });

  test('exits 78 without a users file, and looks at the rest all the same', async () => {
    const environment = { ...checkEnvironment('http://127.0.0.1:9'), USERS_FILE: 'missing.json' };
    const { code, row } = await rowsOf(check(['--json'], environment));
    expect(code).toBe(78);
    expect(row('users')).toMatchObject({ state: 'problem', says: expect.stringContaining('missing.json') });
    expect(row('connection')).toMatchObject({ state: 'problem' });
  });

  test('exits 64 with wrong arguments, and repeats none of them', async () => {
    const relay = check(['--password', CANARY.password], checkEnvironment('http://127.0.0.1:9'));
    expect(await relay.exited).toEqual({ code: 64, signal: null });
    expect(relay.stdout()).toBe('');
    expect(relay.stderr()).toMatch(/^Usage: npm run check/);
  });
});

describeWithRedis('npm run check, of Redis', () => {
  test.each<[string, string[], (url: string) => string, string]>([
    ['is not there', [], () => `redis://user:${CANARY.secondKey}@127.0.0.1:9`, 'ECONNREFUSED'],
    [
      'has other passwords',
      ['--requirepass', 'x'],
      (url) => url.replace('//', `//:${CANARY.key}@`),
      'WRONGPASS',
    ],
    ['takes no writes', ['--replicaof', '127.0.0.1 9'], (url) => url, 'READONLY'],
    ['speaks no TLS', [], (url) => url.replace('redis:', 'rediss:'), '\\w+'],
  ])('finds out that it %s', async (_what, options, urlOf, cause) => {
    const redis = await startRedis(...options);
    const environment = checkEnvironment('http://127.0.0.1:9', { REDIS_URL: urlOf(redis.url) });
    const { code, row } = await rowsOf(check(['--json'], environment));
    expect(code).toBe(1);
    expect(row('Redis')).toMatchObject({
      state: 'problem',
      says: expect.stringMatching(`^cannot be used \\((${cause})\\)$`),
      advice: expect.not.stringMatching(/^Look at the host, the port and the network/),
    });
  });
});
