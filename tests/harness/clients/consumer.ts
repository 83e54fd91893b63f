import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** The package, as `npm run build` makes it and the relay serves it. */
export const TARBALL = join(ROOT, 'dist/bot-relay-client.tgz');

/** A project that uses the package, in a temporary folder. */
export interface Consumer {
  readonly folder: string;
  /** Writes files into it, by name. */
  write(files: Readonly<Record<string, string>>): void;
  remove(): void;
}

/** Makes a project with the package of the last build, and with `packages` linked from this checkout. */
export function makeConsumer(packages: readonly string[]): Consumer {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-consumer-'));
  const installed = join(folder, 'node_modules');
  const own = join(installed, 'bot-relay-client');
  mkdirSync(own, { recursive: true });
  execFileSync('tar', ['-xzf', TARBALL, '-C', own, '--strip-components=1']);
  for (const name of packages) {
    mkdirSync(dirname(join(installed, name)), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), join(installed, name));
  }
  return {
    folder,
    write(files) {
      for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
    },
    remove: () => rmSync(folder, { recursive: true }),
  };
}
