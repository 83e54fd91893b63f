import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { saveUser } from '../../src/authenticate/password/users.ts';
import { freePort } from '../../tests/harness/relay/free-port.ts';
import { startChild } from './child.ts';
import { API_KEY, USER } from './message.ts';
import { signIn } from './sign-in.ts';
import { waitUntil } from './wait.ts';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
/** A guard against hanging, also on a machine that is busy. */
const START_TIMEOUT_MS = 60_000;
/** As `npm start` has it. */
const FLAGS = ['--max-semi-space-size=16', '--no-parallel-scavenge'];

/** As in production, but with limits so high that they do not matter, and no run without its client. */
const ENVIRONMENT = {
  NODE_ENV: 'production',
  PORT: '0',
  HOST: '127.0.0.1',
  PUBLIC_URL: 'https://chat.example.com',
  UPSTREAM_API_KEYS: API_KEY,
  BOTS: 'bench/*',
  SESSION_SECRETS: 'bench-session-secret-7c1e09d4b2f85a36',
  CHANNEL_SECRET: 'bench-channel-secret-63a85f2b4d90e1c7',
  USERS_FILE: 'users.json',
  MAX_CONNECTIONS: '1000000',
  RATE_LIMIT: '1000000',
  MAX_STREAMS_PER_USER: '1000000',
  CLIENT_LIMIT_PER_ADDRESS: '1000000000',
  CLIENT_LIMIT_PER_SESSION: '1000000000',
  // The others abort a run with its client, too.
  JOIN_GRACE_MS: '0',
  SHUTDOWN_DELAY_MS: '0',
  SHUTDOWN_GRACE_MS: '0',
};

export interface RelayProcess {
  readonly port: number;
  readonly pid: number;
  /** The `Cookie` header of a signed-in user. */
  readonly cookie: string;
  /** Signs the user in once more; returns the `Cookie` header of that session. */
  signIn(): Promise<string>;
  /** Asks the relay to stop, and removes what it wrote. */
  close(): Promise<void>;
}

/**
 * Starts the built relay in front of the bot service at `upstreamPort`, with its log in a file, and signs a user in. It
 * does not get the environment of this process or a `.env` file. `environment` adds to its variables.
 * `nodeOptions`, and RELAY_NODE_OPTIONS of this process, are flags for its Node.js.
 * @throws Error if it has not been built or does not start
 */
export async function startRelay(
  upstreamPort: number,
  environment: Readonly<Record<string, string>> = {},
  nodeOptions: readonly string[] = [],
): Promise<RelayProcess> {
  if (!existsSync(MAIN)) throw new Error('the relay is not built: npm run build');
  const directory = mkdtempSync(join(tmpdir(), 'bot-relay-bench-'));
  await saveUser(join(directory, 'users.json'), USER.username, USER.password);
  const log = join(directory, 'relay.log');
  const own = process.env.RELAY_NODE_OPTIONS?.split(' ') ?? [];
  const child = startChild(process.execPath, [...FLAGS, ...own, ...nodeOptions, MAIN], {
    cwd: directory,
    env: {
      ...ENVIRONMENT,
      METRICS_PORT: String(await freePort()),
      UPSTREAM_BASE_URL: `http://127.0.0.1:${upstreamPort}`,
      ...environment,
    },
    stdio: ['ignore', openSync(log, 'a'), 'inherit'],
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const close = async () => {
    child.kill('SIGTERM');
    await exited;
    rmSync(directory, { recursive: true });
  };
  try {
    await waitUntil(() => portIn(log) !== undefined || child.exitCode !== null, START_TIMEOUT_MS);
    const port = portIn(log);
    if (port === undefined) throw new Error('the relay did not start');
    // It listens before it has reached Redis.
    if (environment.REDIS_URL) await waitUntil(() => isLogged('redis ready', log), START_TIMEOUT_MS);
    return { port, pid: child.pid as number, cookie: await signIn(port), signIn: () => signIn(port), close };
  } catch (error) {
    await close();
    throw error;
  }
}

function isLogged(message: string, log: string): boolean {
  return readFileSync(log, 'utf8').includes(`"msg":"${message}"`);
}

/** The port in the log line `listening`; undefined before it is written. */
function portIn(log: string): number | undefined {
  const port = /"port":(\d+).*"msg":"listening"/.exec(readFileSync(log, 'utf8'))?.[1];
  return port === undefined ? undefined : Number(port);
}
