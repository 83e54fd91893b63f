import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { readEnvironment } from '../config/environment.ts';
import { openLog } from '../process/log-output.ts';
import { isUnderNpm, stopOnSignals } from '../process/shutdown.ts';
import { type BotService, startBotService } from '../service/bot-service.ts';
import { EX_USAGE } from './usage.ts';

export const USAGE =
  'Usage: bot-relay demo-bot --keys-file FILE [--host 127.0.0.1] [--port 4000] [--rate-limit 5]\n';

/**
 * Runs the demo's bot service as a process of its own, until a signal. Returns nothing once it listens, or the exit code
 * if an argument is wrong.
 */
export async function run(args: readonly string[]): Promise<number | undefined> {
  // It also removes the secrets from `process.env`.
  const { environment } = readEnvironment();
  const { logger } = openLog('info');
  try {
    const { url, close } = await startDemoBot(args);
    stopOnSignals({ logger, close, underNpm: isUnderNpm(environment) });
    logger.info({ host: url.hostname, port: Number(url.port) }, 'listening');
    return undefined;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n${USAGE}`);
    return EX_USAGE;
  }
}

/**
 * Starts the demo's bot service as the command line says. The file of `--keys-file` holds the keys that it
 * accepts, separated by commas or line ends; `--rate-limit` is how many requests one bot takes in a second.
 * @throws Error that says in plain words which argument cannot be used
 */
function startDemoBot(args: readonly string[]): Promise<BotService> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      'keys-file': { type: 'string' },
      host: { type: 'string', default: '127.0.0.1' },
      port: { type: 'string', default: '4000' },
      'rate-limit': { type: 'string', default: '5' },
    },
  });
  return startBotService({
    keys: readKeys(values['keys-file']),
    host: values.host,
    port: whole('--port', values.port),
    limit: whole('--rate-limit', values['rate-limit']),
  });
}

function readKeys(path: string | undefined): string[] {
  if (!path) throw new Error('--keys-file must name a file');
  const keys = readFileSync(path, 'utf8')
    .split(/[,\n]/)
    .map((key) => key.trim())
    .filter((key) => key !== '');
  if (keys.length === 0) throw new Error('--keys-file names an empty file');
  return keys;
}

function whole(name: string, text: string): number {
  if (!/^\d{1,5}$/.test(text)) throw new Error(`${name} must be a whole number`);
  return Number(text);
}
