import { type BotSettings, fingerprints, type OwnSettings, rateLimitOf } from '../bots/bot-settings.ts';
import { fileChanges } from '../bots/file-changes.ts';
import { readBotSettings } from '../bots/read-bot-settings.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { type KeyUse, keyRings } from '../relay/upstream/key-rings.ts';
import type { KnownBots } from '../routes/parts.ts';
import type { Secret } from '../secret.ts';

/** What is known of the bots right now, and how to have it read again. */
export interface LiveBots extends KnownBots {
  /** Why the files could not be used when they were last read; `undefined` if they could. */
  lastFailure(): ReloadFailure | undefined;
  /** Reads the files now, and has keys tried again that were refused. */
  reload(): void;
  close(): void;
}

export interface ReloadFailure {
  readonly at: Date;
  /** In plain words, with no value that was set. */
  readonly problems: readonly string[];
}

export interface LiveBotsOptions {
  readonly config: Config;
  readonly logger: Logger;
  /** Told whenever the bot service has taken or refused a key. */
  readonly observeKey?: (use: KeyUse) => void;
  /**
   * Told when the files have changed or somebody asked for a reload: whether they could be used, and the fingerprints
   * of the keys that count from then on.
   */
  readonly observeReload?: (ok: boolean, keys: readonly string[]) => void;
  /** How often the files are looked at, in ms. */
  readonly lookEveryMs?: number;
}

/**
 * Goes by the bots' settings of the configuration, and by those of its files whenever these change. Files that
 * cannot be used change nothing: what was good before stays, and the log says what is wrong.
 */
export function liveBots(options: LiveBotsOptions): LiveBots {
  const { config, logger, observeKey, observeReload = () => {}, lookEveryMs } = options;
  const { apiKeys, own, keyFiles } = config.upstream;
  let settings: BotSettings = { apiKeys, own };
  let files = [keyFiles.apiKeys, keyFiles.bots].filter((path) => path !== undefined);
  let failure: ReloadFailure | undefined;
  /** What was told last, so that nothing is told twice. */
  let told = shown(settings);
  const rings = keyRings({ settings, bots: config.bots, ...(observeKey && { observe: observeKey }) });

  function isNews(what: string): boolean {
    const wasTold = told === what;
    told = what;
    return !wasTold;
  }
  function fail(problems: readonly string[]): void {
    failure = { at: new Date(), problems };
    if (!isNews(problems.join())) return;
    observeReload(false, fingerprints(settings));
    logger.error({ problems }, 'reload failed, the last good configuration stays');
  }
  function apply(next: BotSettings): void {
    failure = undefined;
    settings = next;
    rings.use(next);
    if (!isNews(shown(next))) return;
    observeReload(true, fingerprints(next));
    logger.info({ settings: JSON.parse(shown(next)) }, 'reloaded');
  }
  const changes = fileChanges({
    files: () => files,
    onChange() {
      const read = readBotSettings(config);
      files = [...read.files];
      if (read.problems.length > 0) fail(read.problems);
      else apply(read.settings);
    },
    ...(lookEveryMs && { lookEveryMs }),
  });
  return {
    keyRings: rings,
    limitOf: (bot) => rateLimitOf(settings, bot),
    lastFailure: () => failure,
    reload() {
      logger.info({ files: files.length }, 'reading the files of keys and bots');
      // Who asks gets an answer.
      told = '';
      if (files.length > 0) changes.readNow();
      rings.retry();
    },
    close: changes.close,
  };
}

/** The settings as the log may show them, with fingerprints for keys. */
function shown({ apiKeys, own }: BotSettings): string {
  const shownKeys = (keys: readonly Secret[] | undefined) => keys?.map(({ fingerprint }) => fingerprint);
  const entries = Object.entries(own).map(([bot, { keys, rateLimit }]: [string, OwnSettings]) => [
    bot,
    { keys: shownKeys(keys), rateLimit },
  ]);
  return JSON.stringify({ keys: shownKeys(apiKeys), own: Object.fromEntries(entries) });
}
