import { tmpdir } from 'node:os';
import { type Config, ConfigError } from '../config/config.ts';
import { tryFolder } from '../relay/operations/spool-upload.ts';

/**
 * With UPLOADS=spool, tries whether uploads can be written to disk.
 * @throws ConfigError if they cannot
 */
export async function trySpoolFolder({ upstream }: Pick<Config, 'upstream'>): Promise<void> {
  if (upstream.uploads !== 'spool') return;
  const folder = tmpdir();
  try {
    await tryFolder(folder);
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    const problem = `UPLOADS=spool: no file can be written to ${folder} (${code}). Set TMPDIR to another folder, or UPLOADS=stream.`;
    throw new ConfigError([problem], problem);
  }
}
