import type { Secret } from '../secret.ts';
import { apiKeyList } from './schemas.ts';
import { readSecretFile } from './secret-file.ts';

/** The keys of a file, or its problems, as texts that follow the file's name. */
export interface KeysFile {
  readonly keys: readonly Secret[];
  readonly problems: readonly string[];
}

/** Reads keys that are separated by commas or line ends. */
export function readKeysFile(path: string): KeysFile {
  const read = readSecretFile(path);
  if ('problem' in read) return { keys: [], problems: [read.problem] };
  const { data = [], error } = apiKeyList.safeParse(read.text);
  return { keys: data, problems: [...new Set(error?.issues.map(({ message }) => message))] };
}
