import { dirname, resolve } from 'node:path';
import { z } from 'zod';
import { type Secret, secret } from '../secret.ts';
import { OPERATION_GROUPS } from './bot.ts';
import { type BotSettings, type OwnSettings, overlap } from './bot-settings.ts';
import { botPattern, headerText, MAX_RATE_LIMIT } from './schemas.ts';
import { readKeysFile, readSecretFile } from './secret-files.ts';

/** The content of `BOTS_FILE`, and its problems, which contain no configured value. */
interface BotsFile {
  readonly own: Readonly<Record<string, OwnSettings>>;
  readonly problems: readonly string[];
  /** The key files that it names. */
  readonly keyFiles: readonly string[];
}

const groupsMessage = `must be a list of ${OPERATION_GROUPS.join(' or ')}`;
const limitMessage = `must be a whole number from 1 to ${MAX_RATE_LIMIT}`;

/** `namespace/bot`, each short and of few characters, or `*`. */
const LOOKS_LIKE_A_NAME = /^(\*|[\p{L}\p{N}._-]{1,32})\/(\*|[\p{L}\p{N}._-]{1,32})$/u;

const entrySchema = z
  .strictObject(
    {
      keys: z
        .array(z.string('must hold strings').pipe(headerText), 'must be a list')
        .min(1, 'must not be an empty list')
        .transform((keys) => [...new Set(keys)].map(secret))
        .optional(),
      keysFile: z.string('must be a path').min(1, 'must be a path').optional(),
      operations: z
        .array(z.enum(OPERATION_GROUPS, groupsMessage), groupsMessage)
        .min(1, groupsMessage)
        .optional(),
      rateLimit: z.int(limitMessage).min(1, limitMessage).max(MAX_RATE_LIMIT, limitMessage).optional(),
    },
    'must be an object',
  )
  .refine(({ keys, keysFile }) => !keys || keysFile === undefined, 'has both keys and keysFile')
  .refine((entry) => Object.values(entry).some((value) => value !== undefined), 'sets nothing');

/**
 * Reads the file at `path`: JSON with an entry for each bot. Its `keysFile` is relative to the folder of the file.
 * `bots` is the allow-list: an entry that matches none of its bots is a problem, since it is probably misspelled.
 */
export function readBotsFile(path: string, bots: readonly string[] | undefined): BotsFile {
  const read = readSecretFile(path);
  if ('problem' in read) return failed(read.problem);
  const entries = parseObject(read.text);
  if (!entries) return failed('must hold a JSON object with an entry per bot');
  const own: Record<string, OwnSettings> = {};
  const problems: string[] = [];
  const keyFiles: string[] = [];
  for (const [index, [pattern, value]] of Object.entries(entries).entries()) {
    const isBot = botPattern.safeParse(pattern).success;
    const isAllowed = isBot && (bots === undefined || bots.some((bot) => overlap(bot, pattern)));
    // Any other text may be a key in the wrong place, and is not printed.
    const place = isAllowed || LOOKS_LIKE_A_NAME.test(pattern) ? pattern : `entry ${index + 1}`;
    const report = (problem: string) => problems.push(`BOTS_FILE: ${place} ${problem}`);
    if (!isBot) report('is not named namespace/bot');
    else if (!isAllowed) report('is a bot that BOTS does not allow');
    own[pattern] = readEntry(value, { folder: dirname(path), report, keyFiles });
  }
  return { own, problems, keyFiles };
}

interface EntryContext {
  readonly folder: string;
  readonly report: (problem: string) => void;
  readonly keyFiles: string[];
}

function readEntry(value: unknown, { folder, report, keyFiles }: EntryContext): OwnSettings {
  const { data, error } = entrySchema.safeParse(value);
  if (!data) {
    const words = error.issues.flatMap((issue) => {
      if (issue.code === 'unrecognized_keys') return issue.keys.map(unknownMember);
      const [field] = issue.path;
      return `${field ? `${String(field)} ` : ''}${issue.message}`;
    });
    new Set(words).forEach(report);
    return {};
  }
  const { keysFile, keys, rateLimit, operations } = data;
  const path = keysFile && resolve(folder, keysFile);
  if (path) keyFiles.push(path);
  const allKeys = path ? keysOfFile(path, report) : keys;
  return {
    ...(allKeys && { keys: allKeys }),
    ...(rateLimit !== undefined && { rateLimit }),
    ...(operations && { operations }),
  };
}

/** Names a member only if it looks like a name: it may be a key in the wrong place. */
function unknownMember(name: string): string {
  const named = /^[a-z]{1,20}$/i.test(name) ? `has ${name}, which` : 'has a member that';
  return `${named} is not known: an entry has keys or keysFile, rateLimit and operations`;
}

function keysOfFile(path: string, report: EntryContext['report']): readonly Secret[] {
  const { keys, problems } = readKeysFile(path);
  for (const problem of problems) report(`keysFile ${problem}`);
  return keys;
}

/** Parses a JSON object. The parser's error is not used, since it quotes the text, which may hold keys. */
function parseObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function failed(problem: string): BotsFile {
  return { own: {}, problems: [`BOTS_FILE ${problem}`], keyFiles: [] };
}

/** The part of the configuration that is about bots. */
interface ConfiguredBots {
  /** The allow-list. */
  readonly bots: readonly string[];
  readonly upstream: {
    readonly apiKeys: BotSettings['apiKeys'];
    /** The files that may change while the relay runs. */
    readonly keyFiles: { readonly apiKeys: string | undefined; readonly bots: string | undefined };
  };
}

interface ReadBotSettings {
  readonly settings: BotSettings;
  /** What is wrong, without configured values; if there are problems, the settings must not be used. */
  readonly problems: readonly string[];
  /** Every file that was read or should exist. */
  readonly files: readonly string[];
}

/** Reads the files of the configuration again; settings that are not from a file stay the same. */
export function readBotSettings({ upstream, bots }: ConfiguredBots): ReadBotSettings {
  const { apiKeys: keysPath, bots: botsPath } = upstream.keyFiles;
  const keysFile = keysPath ? readKeysFile(keysPath) : { keys: upstream.apiKeys, problems: [] };
  const botsFile = botsPath ? readBotsFile(botsPath, bots) : { own: {}, problems: [], keyFiles: [] };
  return {
    settings: { apiKeys: keysFile.keys, own: botsFile.own },
    problems: [
      ...keysFile.problems.map((problem) => `UPSTREAM_API_KEYS_FILE ${problem}`),
      ...botsFile.problems,
    ],
    files: [keysPath, botsPath, ...botsFile.keyFiles].filter((path) => path !== undefined),
  };
}
