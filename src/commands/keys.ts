import type { Writable } from 'node:stream';
import { type Config, loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { Problem } from '../errors.ts';
import { createLogger } from '../logger.ts';
import { type KeyRings, keyRings } from '../relay/upstream/key-rings.ts';
import { openRedis, whenConnected } from '../storage/redis.ts';
import { type KeyReport, readKeyReports } from '../watch/key-reports.ts';
import { EX_USAGE } from './usage.ts';

export const USAGE = `Usage: bot-relay keys          print the keys of each bot, by fingerprint
       bot-relay keys --json   the same as JSON
`;

interface KeyLine {
  /** Its position in the configuration, from 1; null if it is not configured, but some instance has used it. */
  readonly position: number | null;
  readonly fingerprint: string;
  readonly lastWorked: Date | null;
  readonly lastRefused: Date | null;
}

interface BotLines {
  readonly bot: string;
  readonly keys: readonly KeyLine[];
}

/** Prints the keys of this environment's configuration. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  const { environment, inFile } = readEnvironment();
  return keysCommand(args, loadConfig(environment, inFile), process.stdout);
}

/**
 * Prints the keys of each bot, by fingerprint and never by value. Each has the times when it last worked and when it
 * was last refused, which all instances write to Redis. Returns the exit code: 0 done, 1 Redis cannot be used, 64 wrong
 * arguments.
 */
export async function keysCommand(
  args: readonly string[],
  config: Config,
  output: Writable,
): Promise<number> {
  const json = args[0] === '--json';
  if (args.length > (json ? 1 : 0)) {
    output.write(USAGE);
    return EX_USAGE;
  }
  let reports: readonly KeyReport[] = [];
  try {
    reports = await reportsOf(config);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    output.write('Redis cannot be used; npx bot-relay check says why.\n');
    return 1;
  }
  const settings = config.upstream;
  const lines = config.demo ? [] : linesOf(keyRings({ settings, bots: config.bots }), reports);
  const shared = config.redis !== undefined;
  output.write(json ? `${JSON.stringify({ shared, bots: lines }, null, 2)}\n` : textOf(lines, config));
  return 0;
}

async function reportsOf({ redis: settings }: Config): Promise<readonly KeyReport[]> {
  if (!settings) return [];
  const redis = openRedis({ ...settings, logger: createLogger('silent') });
  try {
    await whenConnected(redis);
    return await readKeyReports(redis);
  } finally {
    redis.close();
  }
}

function linesOf(rings: KeyRings, reports: readonly KeyReport[]): BotLines[] {
  return rings.all().map(({ name, keys }) => {
    const own = new Map(
      reports.filter(({ ring }) => ring === name).map((report) => [report.fingerprint, report]),
    );
    const configured = keys.map(({ fingerprint }) => fingerprint);
    const others = [...own.keys()].filter((fingerprint) => !configured.includes(fingerprint));
    const line = (fingerprint: string, position: number | null): KeyLine => ({
      position,
      fingerprint,
      lastWorked: own.get(fingerprint)?.worked ?? null,
      lastRefused: own.get(fingerprint)?.refused ?? null,
    });
    return {
      bot: name,
      keys: [
        ...configured.map((fingerprint, index) => line(fingerprint, index + 1)),
        ...others.map((fingerprint) => line(fingerprint, null)),
      ],
    };
  });
}

function textOf(lines: readonly BotLines[], { demo, redis }: Config): string {
  if (demo) return 'In demo mode the relay makes a key of its own at every start.\n';
  const text = lines.flatMap(({ bot, keys }) => [bot, ...keys.map(keyText)]);
  if (!redis) {
    text.push(
      '',
      'Without REDIS_URL only the relay itself knows when a key worked: see "upstream key accepted" and',
      '"upstream key rejected" in its log.',
    );
  }
  return `${text.join('\n')}\n`;
}

function keyText({ position, fingerprint, lastWorked, lastRefused }: KeyLine): string {
  const times = `worked ${timeText(lastWorked)}   refused ${timeText(lastRefused)}`;
  return `  ${position ?? '-'}  ${fingerprint}   ${times}${position === null ? '   (not configured here)' : ''}`;
}

function timeText(time: Date | null): string {
  return time ? time.toISOString().replace(/\.\d+/, '') : 'never';
}
