import { readFileSync } from 'node:fs';
import type { Secret } from '../secret.ts';
import { apiKeyList } from './schemas.ts';

/** The text of a file, or a problem, as a text that follows the file's name and does not quote the content. */
type FileText = { readonly text: string } | { readonly problem: string };

/** Reads a file, and trims its content. */
export function readSecretFile(path: string): FileText {
  try {
    const text = readFileSync(path, 'utf8').trim();
    return text === '' ? { problem: 'names an empty file' } : { text };
  } catch (error) {
    return { problem: `names a file that cannot be read (${(error as NodeJS.ErrnoException).code})` };
  }
}

/** The keys of a file, or its problems, as texts that follow the file's name. */
interface KeysFile {
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
