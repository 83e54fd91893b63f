import { readFileSync } from 'node:fs';

/** The text of a file, or a problem, as a text that follows the file's name and does not quote the content. */
export type FileText = { readonly text: string } | { readonly problem: string };

/** Reads a file, and trims its content. */
export function readSecretFile(path: string): FileText {
  try {
    const text = readFileSync(path, 'utf8').trim();
    return text === '' ? { problem: 'names an empty file' } : { text };
  } catch (error) {
    return { problem: `names a file that cannot be read (${(error as NodeJS.ErrnoException).code})` };
  }
}
