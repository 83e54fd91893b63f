import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { type BotService, startBotService } from './bot-service.ts';

export const DEMO_BOT_USAGE =
  'Usage: bot-relay demo-bot --keys-file FILE [--host 127.0.0.1] [--port 4000] [--rate-limit 5]\n';

/**
 * Starts the demo's bot service as the command line says. The file of `--keys-file` holds the keys that it
 * accepts, separated by commas or line ends; `--rate-limit` is how many requests one bot takes in a second.
 * @throws Error that says in plain words which argument cannot be used
 */
export function startDemoBot(args: readonly string[]): Promise<BotService> {
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
