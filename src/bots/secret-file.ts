import { readFileSync } from 'node:fs';

/** What a file holds, or what is wrong with it in words that follow the file's name; never anything of its content. */
export type FileText = { readonly text: string } | { readonly problem: string };

/** Reads a file without the white space around its content. */
export function readSecretFile(path: string): FileText {
  try {
    const text = readFileSync(path, 'utf8').trim();
    return text === '' ? { problem: 'names an empty file' } : { text };
  } catch (error) {
    return { problem: `names a file that cannot be read (${(error as NodeJS.ErrnoException).code})` };
  }
}
