import { type BotSettings, fingerprints, type OwnSettings, rateLimitOf } from '../bots/bot-settings.ts';
import { fileChanges } from '../bots/file-changes.ts';
import { readBotSettings } from '../bots/read-bot-settings.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { type KeyRings, type KeyUse, keyRings } from '../relay/upstream/key-rings.ts';
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

/** What counts right now, and what was told of it. */
interface State {
  readonly options: LiveBotsOptions;
  readonly rings: KeyRings;
  settings: BotSettings;
  files: readonly string[];
  failure: ReloadFailure | undefined;
  /** What was told last, so that nothing is told twice. */
  told: string;
}

/**
 * Goes by the bots' settings of the configuration, and by those of its files whenever these change. Files that
 * cannot be used change nothing: what was good before stays, and the log says what is wrong.
 */
export function liveBots(options: LiveBotsOptions): LiveBots {
  const { logger, lookEveryMs } = options;
  const state = stateAtStart(options);
  const changes = fileChanges({
    files: () => state.files,
    onChange: () => readFiles(state),
    ...(lookEveryMs && { lookEveryMs }),
  });
  return {
    keyRings: state.rings,
    limitOf: (bot) => rateLimitOf(state.settings, bot),
    lastFailure: () => state.failure,
    reload() {
      logger.info({ files: state.files.length }, 'reading the files of keys and bots');
      // Who asks gets an answer.
      state.told = '';
      if (state.files.length > 0) changes.readNow();
      state.rings.retry();
    },
    close: changes.close,
  };
}

function stateAtStart(options: LiveBotsOptions): State {
  const { config, observeKey } = options;
  const { apiKeys, own, keyFiles } = config.upstream;
  const settings: BotSettings = { apiKeys, own };
  return {
    options,
    rings: keyRings({ settings, bots: config.bots, ...(observeKey && { observe: observeKey }) }),
    settings,
    files: [keyFiles.apiKeys, keyFiles.bots].filter((path) => path !== undefined),
    failure: undefined,
    told: shown(settings),
  };
}

function readFiles(state: State): void {
  const read = readBotSettings(state.options.config);
  state.files = read.files;
  if (read.problems.length > 0) fail(state, read.problems);
  else apply(state, read.settings);
}

function fail(state: State, problems: readonly string[]): void {
  const { logger, observeReload } = state.options;
  state.failure = { at: new Date(), problems };
  if (!isNews(state, problems.join())) return;
  observeReload?.(false, fingerprints(state.settings));
  logger.error({ problems }, 'reload failed, the last good configuration stays');
}

function apply(state: State, settings: BotSettings): void {
  const { logger, observeReload } = state.options;
  state.failure = undefined;
  state.settings = settings;
  state.rings.use(settings);
  if (!isNews(state, shown(settings))) return;
  observeReload?.(true, fingerprints(settings));
  logger.info({ settings: JSON.parse(shown(settings)) }, 'reloaded');
}

/** Notes `what` as told. */
function isNews(state: State, what: string): boolean {
  const wasTold = state.told === what;
  state.told = what;
  return !wasTold;
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
