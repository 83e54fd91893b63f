import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/**
 * A transformer for the first file of a library, and for a source file: what it exports is what Node.js itself loads,
 * once for all test files of a worker. Jest would load hundreds of files again for each test file.
 */
export default {
  process(_source, path, { supportsStaticESM }) {
    const library = `requireByNode(${JSON.stringify(path)})`;
    if (!supportsStaticESM) return { code: `module.exports = ${library};` };
    const names = Object.keys(require(path));
    const lines = names.map(
      (name, index) => `const e${index} = library['${name}'];\nexport { e${index} as '${name}' };`,
    );
    return { code: [`const library = ${library};`, ...lines].join('\n') };
  },
  getCacheKey(source, path, { supportsStaticESM }) {
    const parts = [readFileSync(import.meta.filename), source, path, supportsStaticESM];
    return createHash('sha256').update(parts.join('\n')).digest('hex');
  },
};
