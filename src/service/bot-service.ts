import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Admission, admitCall, endpointLimit } from './admit-call.ts';
import { type Speed, scriptedBrain } from './brains/scripted.ts';
import { openChannels } from './store/channels.ts';
import { lockFile } from './store/lock-file.ts';
import { openDatabase } from './settings/database.ts';
import { Refusal, refuse } from './wire/refusal.ts';
import type { Brain } from './brains/steps.ts';
import { sandboxes } from './sandbox/sandboxes.ts';
import type { Service } from './wire/service-call.ts';

const LIMIT = 5;
const MAX_EXECUTION_MS = 180_000;
const KEEP_DAYS = 30;
const DEMO = 'demo';

export interface BotServiceOptions {
  /** Keys that the service accepts. */
  readonly keys: readonly string[];
  /** The file with all that the service keeps; in memory if not given. */
  readonly database?: { readonly path: string };
  /** For how many days a conversation is kept after it was last used. */
  readonly keepDays?: number;
  readonly speed?: Partial<Speed>;
  /** Bots besides the scripted ones, by `namespace/bot`. */
  readonly brains?: Readonly<Record<string, Brain>>;
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
  /** Makes a key invalid, as an operator does at the service's console. */
  disableKey(key: string): void;
  /** Makes a key valid. */
  enableKey(key: string): void;
  close(): Promise<void>;
}

/**
 * Starts a stand-in for the hosted bot service. It has the operations that clients in the field use, `X-API-KEY` with
 * several valid keys, 5 requests per second for each endpoint, and 3 minutes and 30 steps per request. Its events have
 * the shape that is seen in the field, and words arrive one by one. What it knows is in memory, and bounded.
 * @throws the system's error if the address cannot be used
 */
export async function startBotService(options: BotServiceOptions): Promise<BotService> {
  const { keys, speed = {}, brains = {}, limit = LIMIT, host = '127.0.0.1', port = 0 } = options;
  const valid = new Set(keys);
  const pace = { wordMs: 60, silenceMs: 40_000, ...speed };
  const admission: Admission = {
    isValidKey: (key) => valid.has(key),
    brainOf: (endpoint) => (Object.hasOwn(brains, endpoint) ? brains[endpoint] : scriptedBrain(endpoint, pace)),
    admit: endpointLimit(limit),
  };
  const { service, close } = openService(options);
  const server = createServer((req, res) => void answer(req, res, { admission, service }));
  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    close();
    throw error;
  }
  return {
    url: new URL(`http://${host}:${(server.address() as AddressInfo).port}`),
    disableKey: (key) => valid.delete(key),
    enableKey: (key) => valid.add(key),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
        close();
      }),
  };
}

/** Opens what the service keeps. `close` interrupts the runs that are under way. */
function openService({ database: file, keepDays = KEEP_DAYS, maxExecutionMs = MAX_EXECUTION_MS }: BotServiceOptions) {
  const unlock = file && lockFile(file.path);
  const database = openDatabase(file?.path);
  database.prepare('INSERT OR IGNORE INTO projects (id, name, created_at) VALUES (?, ?, 0)').run(DEMO, DEMO);
  const allSandboxes = sandboxes();
  const { forget: onGone } = allSandboxes;
  const channels = openChannels(database, { keepDays, isFile: file !== undefined, onGone });
  const service: Service = { channels, sandboxes: allSandboxes, maxExecutionMs, countMessage: () => true };
  const close = () => {
    channels.close();
    database.close();
    unlock?.();
  };
  return { service, close };
}

async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  { admission, service }: { readonly admission: Admission; readonly service: Service },
): Promise<void> {
  try {
    const { operation, ...admitted } = admitCall(req, admission);
    await operation({ req, res, service, projectId: DEMO, ...admitted });
  } catch (error) {
    if (!(error instanceof Refusal) || res.headersSent) res.destroy();
    else refuse(res, error, error.code === 'RATE_LIMITED' ? { 'Retry-After': '1' } : {});
  }
}
