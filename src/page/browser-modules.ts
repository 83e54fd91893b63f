import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { basename, extname } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What an import or export of another module begins with, at the start of a line: so none in a comment does. */
const SPECIFIER = /^((?:import|export)\b[^'"`;]*?\bfrom\s*["']|import\s*["'])([^"'\n]+)(?=["'])/gm;
/** A map would have to be served as well. */
const SOURCE_MAP = /^\/\/# sourceMappingURL=.*$/gm;

/**
 * A module and all that it imports, as a browser can load them from one folder: by the names under which they are
 * to be served, `name` being that of the module at `entry`, and without types.
 * @throws the system's error if a module cannot be read or found
 */
export function browserModules(entry: URL, name: string): Map<string, string> {
  const names = new Map([[entry.href, name]]);
  const stem = basename(name, '.js');
  const nameOf = (specifier: string, parent: string) => {
    const { href } = specifier.startsWith('.')
      ? new URL(specifier, parent)
      : new URL(import.meta.resolve(specifier));
    const known = names.get(href);
    if (known !== undefined) return known;
    // The number keeps modules apart that have the same name in different folders.
    const next = `${stem}-${names.size}-${basename(href, extname(href))}.js`;
    names.set(href, next);
    return next;
  };
  const modules = new Map<string, string>();
  // Grows while it is gone through.
  for (const [href, served] of names) {
    const path = fileURLToPath(href);
    const source = readFileSync(path, 'utf8');
    const code = path.endsWith('.ts') ? stripTypeScriptTypes(source) : source;
    modules.set(
      served,
      code
        .replace(SOURCE_MAP, '')
        .replace(SPECIFIER, (_, before, specifier) => `${before}./${nameOf(specifier, href)}`),
    );
  }
  return modules;
}
