import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { secret } from '../secret.ts';
import { type Admission, admitCall, endpointLimit } from './admit-call.ts';
import { type BotBrainsOptions, botBrains, embeddingModelOf } from './bot-brains.ts';
import type { Console, ConsoleOptions } from './console/console.ts';
import { testConnection } from './models/connection-test.ts';
import { operationsOf } from './operations.ts';
import { type DatabaseFile, openState } from './service-state.ts';
import { DEMO, type Settings } from './settings/settings.ts';
import { Refusal, refuse } from './wire/answers.ts';

const LIMIT = 5;
const MAX_EXECUTION_MS = 180_000;
const KEEP_DAYS = 30;

export interface BotServiceOptions
  extends Pick<BotBrainsOptions, 'assistant' | 'brains' | 'onModelError' | 'speed'> {
  /** Keys that are imported into the project `demo`, as long as there is one; those that are known stay as they are. */
  readonly keys?: readonly string[];
  /** In memory if not given. */
  readonly database?: DatabaseFile | undefined;
  /** For how many days a conversation is kept after it was last used. */
  readonly keepDays?: number;
  /** The limit on the execution of one request, in ms. */
  readonly maxExecutionMs?: number;
  /** Requests that one endpoint takes in a second. */
  readonly limit?: number;
  /** Where to listen; a free loopback port if not given. */
  readonly host?: string;
  readonly port?: number;
  /** Where the console listens; there is none if not given. */
  readonly console?: Pick<ConsoleOptions, 'host' | 'port' | 'publicUrl'> | undefined;
  /** Called with each error that is a fault of the service. */
  readonly onFault?: (error: unknown) => void;
}

export interface BotService {
  readonly url: URL;
  readonly settings: Settings;
  readonly console: Console | undefined;
  close(): Promise<void>;
}

/**
 * Starts the bot service. It has the operations that clients in the field use, `X-API-KEY` with several valid keys, 5
 * requests per second for each endpoint, and 3 minutes and 30 steps per request. Its events have the shape that is seen
 * in the field, and words arrive one by one.
 * @throws SettingsError if the database cannot be used or the console needs a password, and the system's error if an
 * address cannot be used
 */
export async function startBotService(options: BotServiceOptions): Promise<BotService> {
  const { keys = [], limit = LIMIT, maxExecutionMs = MAX_EXECUTION_MS, onFault = () => {} } = options;
  const state = openState(options.database, options.keepDays ?? KEEP_DAYS);
  const { settings, channels, sandboxes, knowledge } = state;
  const { projectOfKey, countMessage } = settings;
  const brainOf = botBrains({ ...options, settings, knowledge });
  const admit = endpointLimit(limit);
  const service = { channels, maxExecutionMs, countMessage, onFault };
  const admission = { service, operations: operationsOf(sandboxes), projectOfKey, brainOf, admit };
  const server = createServer((req, res) =>
    answer(req, res, admission).catch((error) => {
      // A client that leaves before its request is whole is no fault.
      if (error !== req.errored) onFault(error);
      res.destroy();
    }),
  );
  let console: Console | undefined;
  const close = async () => {
    const closed = server.listening ? once(server, 'close') : undefined;
    server.close();
    server.closeAllConnections();
    channels.close();
    await console?.close();
    await closed;
    state.close();
  };
  try {
    // An administrator may have deleted the project, or given one of the keys to another.
    const added = settings.project(DEMO) ? keys.filter((key) => !settings.hasKey(key)) : [];
    for (const key of added) settings.importKey(DEMO, `imported ${secret(key).fingerprint}`, key);
    server.listen(options.port ?? 0, options.host ?? '127.0.0.1');
    await once(server, 'listening');
    if (options.console) {
      const embeddingModel = (projectId: string) => embeddingModelOf(settings, projectId);
      const parts = { settings, knowledge, brainOf, embeddingModel, testConnection, onFault };
      // Its pages are loaded only now.
      const { startConsole } = await import('./console/console.ts');
      console = await startConsole({ ...options.console, ...parts });
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    url: urlOf(server.address() as AddressInfo),
    ...{ settings, console, close },
  };
}

function urlOf({ address, family, port }: AddressInfo): URL {
  return new URL(`http://${family === 'IPv6' ? `[${address}]` : address}:${port}`);
}

async function answer(req: IncomingMessage, res: ServerResponse, admission: Admission): Promise<void> {
  try {
    const { operation, ...call } = admitCall(req, admission);
    await operation({ req, res, ...call });
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (res.headersSent) res.destroy();
    else refuse(res, error, error.code === 'RATE_LIMITED' ? { 'Retry-After': '1' } : {});
  }
}
