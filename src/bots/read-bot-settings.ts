import type { Config } from '../config/config.ts';
import type { BotSettings } from './bot-settings.ts';
import { readBotsFile } from './bots-file.ts';
import { readKeysFile } from './keys-file.ts';

export interface ReadBotSettings {
  readonly settings: BotSettings;
  /** In plain words, with no value that was set; the settings are good if there are none. */
  readonly problems: readonly string[];
  /** Every file that was read or asked for. */
  readonly files: readonly string[];
}

/** Reads again what the files of the configuration say; what did not come from a file stays as it is. */
export function readBotSettings({ upstream, bots }: Config): ReadBotSettings {
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
