import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A project that uses the package, in a temporary folder. */
export interface Consumer {
  readonly folder: string;
  /** Writes files into it, by name. */
  write(files: Readonly<Record<string, string>>): void;
  remove(): void;
}

/**
 * Makes a project. The package is installed from the tarball that `npm pack` makes of the last build of this checkout,
 * and `packages` are linked from its `node_modules`.
 */
export function makeConsumer(packages: readonly string[]): Consumer {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-consumer-'));
  const installed = join(folder, 'node_modules');
  const own = join(installed, 'bot-relay');
  mkdirSync(own, { recursive: true });
  const pack = ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder];
  const tarball = execFileSync('npm', pack, {
    cwd: ROOT,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  }).trim();
  execFileSync('tar', ['-xzf', join(folder, tarball), '-C', own, '--strip-components=1']);
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
