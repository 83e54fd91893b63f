import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Secret, secret } from '../secret.ts';
import { type Admission, admitCall, endpointLimit } from './admit-call.ts';
import { type Speed, scriptedBrain } from './brains/scripted.ts';
import type { Brain } from './brains/steps.ts';
import { sandboxes } from './sandbox/sandboxes.ts';
import type { Bot } from './settings/bot.ts';
import { openDatabase } from './settings/database.ts';
import { sealer } from './settings/sealed.ts';
import { DEMO, openSettings, type Settings } from './settings/settings.ts';
import { openChannels } from './store/channels.ts';
import { lockFile } from './store/lock-file.ts';
import { Refusal, refuse } from './wire/refusal.ts';
import type { Service } from './wire/service-call.ts';

const LIMIT = 5;
const MAX_EXECUTION_MS = 180_000;
const KEEP_DAYS = 30;

export interface BotServiceOptions {
  /** Keys that are imported into the project `demo`. */
  readonly keys?: readonly string[];
  /** The file with all that the service keeps, and SERVICE_SECRET; in memory if not given. */
  readonly database?: { readonly path: string; readonly secret: Secret };
  /** For how many days a conversation is kept after it was last used. */
  readonly keepDays?: number;
  readonly speed?: Partial<Speed>;
  /** Bots of every project, which need no settings, by `namespace/bot`. */
  readonly brains?: Readonly<Record<string, Brain>>;
  /** What answers for a bot of the settings. */
  readonly modelBrainOf?: (projectId: string, bot: Bot) => Brain | undefined;
  /** The limit on the execution of one request, in ms. */
  readonly maxExecutionMs?: number;
  /** Requests that one endpoint takes in a second. */
  readonly limit?: number;
  /** Where to listen; a free loopback port if not given. */
  readonly host?: string;
  readonly port?: number;
}

export interface BotService {
  readonly url: URL;
  readonly settings: Settings;
  /** Makes a key invalid, as an operator does at the service's console. */
  disableKey(key: string): void;
  /** Makes a key valid; one that is not known becomes one of the project `demo`. */
  enableKey(key: string): void;
  close(): Promise<void>;
}

/**
 * Starts the bot service. It has the operations that clients in the field use, `X-API-KEY` with several valid keys, 5
 * requests per second for each endpoint, and 3 minutes and 30 steps per request. Its events have the shape that is seen
 * in the field, and words arrive one by one.
 * @throws SettingsError if the database cannot be used, and the system's error if the address cannot
 */
export async function startBotService(options: BotServiceOptions): Promise<BotService> {
  const { keys = [], limit = LIMIT, host = '127.0.0.1', port = 0 } = options;
  const { settings, service, close } = openState(options);
  const imported = (key: string) => settings.importKey(DEMO, `imported ${secret(key).fingerprint}`, key).id;
  for (const key of keys) imported(key);
  const { projectOfKey } = settings;
  const admission = { projectOfKey, brainOf: brainsOf(settings, options), admit: endpointLimit(limit) };
  const server = createServer((req, res) => void answer(req, res, { admission, service }));
  server.listen(port, host);
  await once(server, 'listening').catch((error) => {
    service.channels.close();
    close();
    throw error;
  });
  return {
    url: new URL(`http://${host}:${(server.address() as AddressInfo).port}`),
    settings,
    disableKey: (key) => settings.setKeyEnabled(imported(key), false),
    enableKey: (key) => settings.setKeyEnabled(imported(key), true),
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          close();
          resolve();
        });
        server.closeAllConnections();
        service.channels.close();
      }),
  };
}

/** Finds what answers for a bot: first the settings, then, for the project with the namespace `demo`, the scripts. */
function brainsOf(
  settings: Settings,
  { brains = {}, modelBrainOf, speed }: BotServiceOptions,
): Admission['brainOf'] {
  const pace = { wordMs: 60, silenceMs: 40_000, ...speed };
  return (projectId, namespace, name) => {
    const endpoint = `${namespace}/${name}`;
    if (Object.hasOwn(brains, endpoint)) return brains[endpoint];
    if (!settings.namespaces(projectId).includes(namespace)) return undefined;
    const bot = settings.bot(namespace, name);
    return bot ? modelBrainOf?.(projectId, bot) : scriptedBrain(endpoint, pace);
  };
}

/** Opens what the service keeps. No other service may use the same file until `close`. */
function openState(options: BotServiceOptions) {
  const { database: file, keepDays = KEEP_DAYS, maxExecutionMs = MAX_EXECUTION_MS } = options;
  const unlock = file && lockFile(file.path);
  const opened: (() => void)[] = unlock ? [unlock] : [];
  const close = () => {
    for (const end of opened.splice(0).reverse()) end();
  };
  try {
    const database = openDatabase(file?.path);
    opened.push(() => database.close());
    const sealed = sealer(file?.secret ?? secret(randomBytes(32).toString('base64url')));
    const settings = openSettings(database, sealed, (...gone) => channels.deleteOf(...gone));
    const all = sandboxes();
    const channels = openChannels(database, { keepDays, isFile: file !== undefined, onGone: all.forget });
    const { countMessage } = settings;
    const service: Service = { channels, sandboxes: all, maxExecutionMs, countMessage };
    return { settings, service, close };
  } catch (error) {
    close();
    throw error;
  }
}

async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  { admission, service }: { readonly admission: Admission; readonly service: Service },
): Promise<void> {
  try {
    const { operation, ...admitted } = admitCall(req, admission);
    await operation({ req, res, service, ...admitted });
  } catch (error) {
    if (!(error instanceof Refusal) || res.headersSent) res.destroy();
    else refuse(res, error, error.code === 'RATE_LIMITED' ? { 'Retry-After': '1' } : {});
  }
}
