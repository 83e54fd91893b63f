import type { BotSettings } from './bot-settings.ts';
import { readBotsFile } from './bots-file.ts';
import { readKeysFile } from './keys-file.ts';

/** The part of the configuration that is about bots. */
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
