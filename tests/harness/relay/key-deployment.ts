import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from '@jest/globals';
import { keysCommand } from '../../../src/commands/keys.ts';
import { loadConfig } from '../../../src/config/config.ts';
import { type BotService, startBotService } from '../../../src/service/bot-service.ts';
import { call } from '../clients/call.ts';
import { freshFolder, signInAt, startProcess, stopProcesses, usersFile } from './process.ts';
import { CANARY, MESSAGE, USER } from './relay.ts';

/** The key that the bot service accepts at first. */
const OLD = CANARY.key;
const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';

const services: BotService[] = [];
const secrets: string[] = [];
const timers: NodeJS.Timeout[] = [];
/** Stops all that was started; for `afterAll`. */
export async function stopDeployments(): Promise<void> {
  for (const timer of timers.splice(0)) clearInterval(timer);
  await stopProcesses(secrets.splice(0));
  for (const service of services.splice(0)) await service.close();
}

export type Deployment = Awaited<ReturnType<typeof deploy>>;

/** Starts relays with one file of keys, in front of a bot service that accepts the old key. */
export async function deploy(count: number, more: Record<string, string> = {}) {
  const service = await startBotService({ keys: [OLD], speed: { wordMs: 20 }, limit: 1_000 });
  services.push(service);
  return { service, ...(await deployRelays({ url: String(service.url), key: OLD }, count, more)) };
}

/** Starts relays with one file of keys, which at first has that of the upstream. */
export async function deployRelays(
  upstream: { readonly url: string; readonly key: string },
  count: number,
  more: Record<string, string> = {},
) {
  secrets.push(upstream.key);
  const folder = freshFolder({ 'users.json': usersFile(), keys: `${upstream.key}\n` });
  const environment = {
    PORT: '0',
    HOST: '127.0.0.1',
    UPSTREAM_BASE_URL: upstream.url,
    UPSTREAM_API_KEYS_FILE: join(folder, 'keys'),
    BOTS: 'demo/echo',
    // No message waits for its turn, also after a pause of this machine.
    ...{ RATE_LIMIT: '1000', MAX_STREAMS_PER_USER: '1000' },
    SESSION_SECRETS: CANARY.sessionSecret,
    CHANNEL_SECRET: CANARY.channelSecret,
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
    /** Replaces the file of keys as an operator should, by renaming another file over it. */
    putKeys(...keys: string[]) {
      secrets.push(...keys);
      writeFileSync(join(folder, 'keys.new'), `${keys.join('\n')}\n`);
      renameSync(join(folder, 'keys.new'), join(folder, 'keys'));
    },
    /** Resolves when every relay has read the keys with these fingerprints. */
    async reloaded(...fingerprints: string[]) {
      const line = new RegExp(
        `"settings":\\{"keys":${JSON.stringify(fingerprints).replace(/[[\]]/g, '\\$&')}.*"reloaded"`,
      );
      await Promise.all(relays.map((relay) => relay.waitFor(line)));
    },
    /** Sends messages at a constant rate until `end` is called. */
    keepSending() {
      const endings: Promise<string>[] = [];
      const send = () => endings.push(ending(endings.length).catch(String));
      const timer = setInterval(send, 250).unref();
      timers.push(timer);
      return {
        /** Resolves when all messages that were sent so far have ended. */
        settled: () => Promise.all([...endings]).then(() => {}),
        /** Resolves when so many more messages have been sent. */
        async more(count: number) {
          const enough = endings.length + count;
          while (endings.length < enough) await sleep(50, undefined, { ref: false });
        },
        /** Stops the sending; resolves with how each message ended. */
        end() {
          clearInterval(timer);
          return Promise.all(endings);
        },
      };
    },
  };
}

/** The keys of the only bot in the output of `keys --json`, by fingerprint. */
function keysIn(printed: string): PrintedKeys {
  const { bots } = JSON.parse(printed) as { bots: { keys: PrintedKey[] }[] };
  return Object.fromEntries((bots[0]?.keys ?? []).map((key) => [key.fingerprint, key]));
}

/** Resolves with what `keys --json` prints as soon as `enough` accepts it. It is asked in this process, which costs less. */
export async function keysOnce({ environment }: Deployment, enough: (keys: PrintedKeys) => boolean) {
  for (;;) {
    const output = new PassThrough();
    expect(await keysCommand(['--json'], loadConfig(environment), output)).toBe(0);
    const keys = keysIn(await text(output.end()));
    if (enough(keys)) return keys;
    await sleep(100, undefined, { ref: false });
  }
}

/** What a process of `keys --json` prints. */
export async function keysOfProcess({ folder, environment }: Deployment): Promise<PrintedKeys> {
  const command = startProcess({ folder, environment, args: ['keys', '--json'] });
  expect(await command.exited).toEqual({ code: 0, signal: null });
  return keysIn(command.stdout());
}

interface PrintedKey {
  readonly fingerprint: string;
  readonly position: number | null;
  readonly lastWorked: string | null;
  readonly lastRefused: string | null;
}
type PrintedKeys = Readonly<Record<string, PrintedKey>>;
