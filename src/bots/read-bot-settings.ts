import type { BotSettings } from './bot-settings.ts';
import { readBotsFile } from './bots-file.ts';
import { readKeysFile } from './keys-file.ts';

/** What a configuration says of bots. */
export interface ConfiguredBots {
  /** The allow-list. */
  readonly bots: readonly string[];
  readonly upstream: {
    readonly apiKeys: BotSettings['apiKeys'];
    /** The files that may change while the relay runs. */
    readonly keyFiles: { readonly apiKeys: string | undefined; readonly bots: string | undefined };
  };
}

export interface ReadBotSettings {
  readonly settings: BotSettings;
  /** In plain words, with no value that was set; the settings are good if there are none. */
  readonly problems: readonly string[];
  /** Every file that was read or asked for. */
  readonly files: readonly string[];
}

/** Reads again what the files of the configuration say; what did not come from a file stays as it is. */
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
