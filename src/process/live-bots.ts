import {
  type BotSettings,
  fingerprints,
  groupsOf,
  type OwnSettings,
  rateLimitOf,
} from '../bots/bot-settings.ts';
import { readBotSettings } from '../bots/bots-file.ts';
import { fileChanges } from '../bots/file-changes.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { type KeyRings, type KeyUse, keyRings } from '../relay/upstream/key-rings.ts';
import type { KnownBots } from '../routes/dependencies.ts';
import type { Secret } from '../secret.ts';

/** The current settings of the bots, and how to read them again. */
export interface LiveBots extends KnownBots {
  /** Reads the files now. Keys that were refused are tried again. */
  reload(): void;
  close(): void;
}

export interface LiveBotsOptions {
  readonly config: Config;
  readonly logger: Logger;
  /** Called whenever the bot service has accepted or refused a key. */
  readonly observeKey: (use: KeyUse) => void;
  /**
   * Called when the files have changed or `reload` was called: whether the files could be used, and the fingerprints of
   * the keys that are in use from then on.
   */
  readonly observeReload: ((ok: boolean, keys: readonly string[]) => void) | undefined;
  /** How often the files are looked at, in ms. */
  readonly pollEveryMs?: number | undefined;
}

/** The current settings, and what was reported of them. */
interface LiveBotsState {
  readonly options: LiveBotsOptions;
  readonly rings: KeyRings;
  settings: BotSettings;
  files: readonly string[];
  canUseFiles: boolean;
  /** The last report, so that nothing is reported twice. */
  lastReport: string;
}

/**
 * Keeps the settings of the bots: at first those of the configuration, then those of its files whenever the files
 * change. If the files cannot be used, the last good settings stay and the log says what is wrong.
 */
export function liveBots(options: LiveBotsOptions): LiveBots {
  const { logger, pollEveryMs } = options;
  const state = stateAtStart(options);
  const changes = fileChanges({
    files: () => state.files,
    onChange: () => readFiles(state),
    ...(pollEveryMs && { pollEveryMs }),
  });
  return {
    keyRings: state.rings,
    limitOf: (bot) => rateLimitOf(state.settings, bot),
    groupsOf: (bot) => groupsOf(state.settings, bot) ?? options.config.operations,
    canUseFiles: () => state.canUseFiles,
    reload() {
      logger.info({ files: state.files.length }, 'reading the files of keys and bots');
      // A reload that was asked for is reported even if nothing has changed.
      state.lastReport = '';
      if (state.files.length > 0) changes.readNow();
      state.rings.tryRefusedAgain();
    },
    close: changes.close,
  };
}

function stateAtStart(options: LiveBotsOptions): LiveBotsState {
  const { config, observeKey } = options;
  const { apiKeys, own, keyFiles } = config.upstream;
  const settings: BotSettings = { apiKeys, own };
  return {
    options,
    rings: keyRings({ settings, bots: config.bots, observe: observeKey }),
    settings,
    files: [keyFiles.apiKeys, keyFiles.bots].filter((path) => path !== undefined),
    canUseFiles: true,
    lastReport: settingsText(settings),
  };
}

function readFiles(state: LiveBotsState): void {
  const read = readBotSettings(state.options.config);
  state.files = read.files;
  if (read.problems.length > 0) fail(state, read.problems);
  else apply(state, read.settings);
}

function fail(state: LiveBotsState, problems: readonly string[]): void {
  const { logger, observeReload } = state.options;
  state.canUseFiles = false;
  if (!isNew(state, problems.join())) return;
  observeReload?.(false, fingerprints(state.settings));
  logger.error({ problems }, 'reload failed, the last good configuration stays');
}

function apply(state: LiveBotsState, settings: BotSettings): void {
  const { logger, observeReload } = state.options;
  state.canUseFiles = true;
  state.settings = settings;
  state.rings.use(settings);
  if (!isNew(state, settingsText(settings))) return;
  observeReload?.(true, fingerprints(settings));
  logger.info({ settings: JSON.parse(settingsText(settings)) }, 'reloaded');
}

/** Whether `report` differs from the last one; remembers it. */
function isNew(state: LiveBotsState, report: string): boolean {
  const isSame = state.lastReport === report;
  state.lastReport = report;
  return !isSame;
}

/** The settings as JSON for the log, with fingerprints instead of keys. */
function settingsText({ apiKeys, own }: BotSettings): string {
  const fingerprintsOf = (keys: readonly Secret[] | undefined) => keys?.map(({ fingerprint }) => fingerprint);
  const entries = Object.entries(own).map(([bot, { keys, ...others }]: [string, OwnSettings]) => [
    bot,
    { keys: fingerprintsOf(keys), ...others },
  ]);
  return JSON.stringify({ keys: fingerprintsOf(apiKeys), own: Object.fromEntries(entries) });
}
