import { createRequire } from 'node:module';

const vm = createRequire(import.meta.url)('node:vm');

/** By path: its source, its script, and what its `import()` does in the newest test file. */
const compiled = new Map();

/**
 * What Jest calls to compile a CommonJS module, for each test file anew. Half of the CPU time of a small test file was
 * that, most of it for Jest's own modules. A script is compiled once for each worker and runs in each test file.
 */
vm.compileFunction = (source, names, { filename, importModuleDynamically, parsingContext }) => {
  let one = compiled.get(filename);
  if (one?.source !== source) {
    const head = `(function (${names.join()}) {`;
    const script = new vm.Script(`${head}${source}\n})`, {
      ...{ filename, columnOffset: -head.length },
      importModuleDynamically: (...args) => one.importModule(...args),
    });
    one = { source, script };
    compiled.set(filename, one);
  }
  one.importModule = importModuleDynamically;
  return one.script.runInContext(parsingContext);
};
