import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { basename, extname } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The specifier of an import or export. It must begin a line, so that comments do not match. */
const SPECIFIER = /^((?:import|export)\b[^'"`;]*?\bfrom\s*["']|import\s*["'])([^"'\n]+)(?=["'])/gm;
/** Removed, since source maps are not served. */
const SOURCE_MAP = /^\/\/# sourceMappingURL=.*$/gm;

/**
 * The modules of `entries` and all modules that they import, changed so that browsers can load them from one folder:
 * without types, and by the file names that are the keys of the map. `entries` names the file of each entry; the names
 * of the others begin with `stem`.
 * @throws the system's error if a module cannot be found or read
 */
export function browserModules(
  entries: Readonly<Record<string, URL>>,
  stem: string,
): ReadonlyMap<string, string> {
  const names = new Map(Object.entries(entries).map(([name, { href }]) => [href, name]));
  const nameOf = (specifier: string, parent: string) => {
    const { href } = specifier.startsWith('.')
      ? new URL(specifier, parent)
      : new URL(import.meta.resolve(specifier));
    const known = names.get(href);
    if (known !== undefined) return known;
    // The number tells modules of the same name in different folders apart.
    const next = `${stem}-${names.size}-${basename(href, extname(href))}.js`;
    names.set(href, next);
    return next;
  };
  const modules = new Map<string, string>();
  // `nameOf` adds modules during this loop.
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
