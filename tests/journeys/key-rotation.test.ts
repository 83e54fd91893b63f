import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { hashPassword } from '../../src/authenticate/password/password-hash.ts';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { secret } from '../../src/secret.ts';
import { call } from '../support/call.ts';
import { freshFolder, type RelayProcess, signInAt, startProcess, stopProcesses } from '../support/process.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { CANARY, MESSAGE, USER } from '../support/relay.ts';

jest.setTimeout(90_000);

const [OLD, NEW] = [CANARY.key, CANARY.secondKey];
const [oldPrint, newPrint] = [OLD, NEW].map((key) => secret(key).fingerprint) as [string, string];
const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
const users = { users: [{ name: USER.name, hash: await hashPassword(USER.password) }] };

let service: BotService;
const secrets: string[] = [];
afterEach(async () => {
  await stopProcesses(secrets.splice(0));
  await service.close();
  stopRedis();
});

interface Deployment {
  readonly folder: string;
  readonly environment: Record<string, string>;
  readonly relays: readonly RelayProcess[];
  /** Replaces the file of keys, as an operator should: by renaming another one over it. */
  putKeys(...keys: string[]): void;
  /** Resolves once every relay has read the keys with these fingerprints. */
  reloaded(...fingerprints: string[]): Promise<void>;
  /** Sends messages at a constant rate from now on; the function ends that and returns how each of them ended. */
  keepSending(): () => Promise<string[]>;
}

/** Relays with one file of keys, in front of a bot service that takes the old key. */
async function deploy(count: number, more: Record<string, string> = {}): Promise<Deployment> {
  service = await startBotService({ keys: [OLD], pace: { wordMs: 20 } });
  const folder = freshFolder({ 'users.json': JSON.stringify(users), keys: `${OLD}\n` });
  const environment = {
    PORT: '0',
    HOST: '127.0.0.1',
    UPSTREAM_BASE_URL: String(service.url),
    UPSTREAM_API_KEYS_FILE: 'keys',
    BOTS: 'demo/echo',
    SESSION_SECRETS: CANARY.sessionSecret,
    ...more,
  };
  const relays = Array.from({ length: count }, () => startProcess({ folder, environment }));
  const entrances = await Promise.all(
    relays.map(async (relay) => {
      const port = await relay.listening();
      const cookie = await signInAt(port, USER.name, USER.password);
      secrets.push(cookie.slice(cookie.indexOf('=') + 1));
      return { port, cookie };
    }),
  );

  async function ending(n: number): Promise<string> {
    const { port, cookie } = entrances[n % count] as (typeof entrances)[number];
    const { status, body } = await call(port, ECHO, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Cookie: cookie },
      body: MESSAGE,
    });
    return /\nevent: asgard\.run\.done\n.*\n\n$/s.test(body) ? 'answered' : `${status} ${body}`;
  }
  return {
    folder,
    environment,
    relays,
    putKeys(...keys) {
      writeFileSync(join(folder, 'keys.new'), `${keys.join('\n')}\n`);
      renameSync(join(folder, 'keys.new'), join(folder, 'keys'));
    },
    async reloaded(...fingerprints) {
      const line = new RegExp(
        `"settings":\\{"keys":${JSON.stringify(fingerprints).replace(/[[\]]/g, '\\$&')}.*"reloaded"`,
      );
      await Promise.all(relays.map((relay) => relay.waitFor(line)));
    },
    keepSending() {
      const endings: Promise<string>[] = [];
      const timer = setInterval(() => {
        endings.push(ending(endings.length).catch(String));
      }, 250);
      return () => {
        clearInterval(timer);
        return Promise.all(endings);
      };
    },
  };
}

/** Resolves with what `keys --json` prints of the only bot, as soon as `enough` accepts it. */
async function keysOnce({ folder, environment }: Deployment, enough: (keys: PrintedKeys) => boolean) {
  for (;;) {
    const command = startProcess({ folder, environment, args: ['keys', '--json'] });
    expect(await command.exited).toEqual({ code: 0, signal: null });
    const { bots } = JSON.parse(command.stdout()) as { bots: { keys: PrintedKey[] }[] };
    const keys = Object.fromEntries((bots[0]?.keys ?? []).map((key) => [key.fingerprint, key]));
    if (enough(keys)) return keys;
    await sleep(200);
  }
}

interface PrintedKey {
  readonly fingerprint: string;
  readonly position: number | null;
  readonly lastWorked: string | null;
  readonly lastRefused: string | null;
}
type PrintedKeys = Readonly<Record<string, PrintedKey>>;

function expectNoFailure(endings: readonly string[], atLeast: number): void {
  expect(endings.filter((ending) => ending !== 'answered')).toEqual([]);
  expect(endings.length).toBeGreaterThan(atLeast);
}

describeWithRedis('the runbook of a rotation, under constant load on two instances', () => {
  test('loses no message, and each step shows that the next one is safe (O7)', async () => {
    const { url: REDIS_URL } = await startRedis();
    const deployment = await deploy(2, { REDIS_URL });
    const endSending = deployment.keepSending();
    await keysOnce(deployment, ({ [oldPrint]: old }) => Boolean(old?.lastWorked));

    service.enableKey(NEW);
    deployment.putKeys(NEW, OLD);
    await deployment.reloaded(newPrint, oldPrint);
    const worked = await keysOnce(deployment, ({ [newPrint]: fresh }) => Boolean(fresh?.lastWorked));
    expect(worked[newPrint]).toMatchObject({ position: 1, lastRefused: null });
    expect(worked[oldPrint]).toMatchObject({ position: 2, lastRefused: null });

    deployment.putKeys(NEW);
    await deployment.reloaded(newPrint);
    const lastOf = async () => (await keysOnce(deployment, () => true))[oldPrint]?.lastWorked;
    // What was before may be told a second late.
    await sleep(1_500);
    const last = await lastOf();
    await sleep(1_500);
    // Nobody uses it any more.
    expect(await lastOf()).toBe(last);
    expect((await keysOnce(deployment, () => true))[oldPrint]?.position).toBeNull();

    service.disableKey(OLD);
    await sleep(1_000);
    expectNoFailure(await endSending(), 20);
    expect(deployment.relays.map((relay) => relay.stdout()).join()).not.toContain('upstream key rejected');
  });

  test('loses no message either when the new key is not valid yet (O7)', async () => {
    const { url: REDIS_URL } = await startRedis();
    const deployment = await deploy(2, { REDIS_URL });
    const endSending = deployment.keepSending();
    deployment.putKeys(NEW, OLD);
    const refused = await keysOnce(deployment, ({ [newPrint]: fresh }) => Boolean(fresh?.lastRefused));
    expect(refused[newPrint]).toMatchObject({ position: 1, lastWorked: null });
    const refusals = () =>
      deployment.relays.map((relay) => relay.stdout().match(/upstream key rejected/g)?.length ?? 0);
    await sleep(3_000);
    // One for each instance, or two that met, however many messages there were.
    expect(Math.max(...refusals())).toBeLessThanOrEqual(2);

    service.enableKey(NEW);
    for (const relay of deployment.relays) relay.signal('SIGHUP');
    await keysOnce(deployment, ({ [newPrint]: fresh }) => Boolean(fresh?.lastWorked));
    expectNoFailure(await endSending(), 15);
  });
});

describe('without Redis', () => {
  test('the log of the relay shows each step, and no message is lost (O7)', async () => {
    const deployment = await deploy(1);
    const [relay] = deployment.relays as [RelayProcess];
    const endSending = deployment.keepSending();
    service.enableKey(NEW);
    deployment.putKeys(NEW, OLD);
    await relay.waitFor(new RegExp(`"keyFingerprint":"${newPrint}","msg":"upstream key accepted"`));
    deployment.putKeys(NEW);
    await deployment.reloaded(newPrint);
    service.disableKey(OLD);
    await sleep(1_000);
    expectNoFailure(await endSending(), 8);
    expect(relay.stdout()).not.toContain('upstream key rejected');
  });
});

describe('SIGHUP', () => {
  test('makes the relay read its files at once', async () => {
    const deployment = await deploy(1);
    const [relay] = deployment.relays as [RelayProcess];
    deployment.putKeys(NEW, OLD);
    relay.signal('SIGHUP');
    await relay.waitFor(/"files":1,"msg":"reading the files of keys and bots"\}\n[^\n]*"reloaded"/);
  });

  test('is harmless where there are none', async () => {
    const deployment = await deploy(1, { UPSTREAM_API_KEYS_FILE: '', UPSTREAM_API_KEYS: OLD });
    const [relay] = deployment.relays as [RelayProcess];
    const endSending = deployment.keepSending();
    await sleep(600);
    relay.signal('SIGHUP');
    await relay.waitFor(/"files":0,"msg":"reading the files of keys and bots"/);
    await sleep(600);
    expectNoFailure(await endSending(), 2);
  });
});
