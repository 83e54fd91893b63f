import vm, { type Context, type Module } from 'node:vm';
import { afterEach, expect, jest, test } from '@jest/globals';

// `compile-once.js` has replaced `vm.compileFunction`.
let files = 0;
const freshName = () => `/modules/${process.pid}-${files++}.js`;

afterEach(() => void jest.restoreAllMocks());

interface Loaded {
  readonly exports: Record<string, unknown>;
}

/** Loads a CommonJS module as Jest does it for a test file, whose globals are those of `context`. */
function load(filename: string, source: string, context: Context, imports?: () => Module): Loaded {
  const module: Loaded = { exports: {} };
  const options = { filename, parsingContext: context, importModuleDynamically: imports };
  vm.compileFunction(source, ['module', 'exports'], options)(module, module.exports);
  return module;
}

test('a module is compiled once, and runs with the globals of each test file', () => {
  const { Script } = vm;
  const scripts = jest.spyOn(vm, 'Script').mockImplementation((...args) => new Script(...args));
  const name = freshName();
  for (const title of ['one', 'other']) {
    const { exports } = load(name, 'exports.found = title + "!";', vm.createContext({ title }));
    expect(exports).toEqual({ found: `${title}!` });
  }
  expect(scripts).toHaveBeenCalledTimes(1);
});

test('a module whose source is another is compiled again', () => {
  const name = freshName();
  const context = vm.createContext();
  expect(load(name, 'exports.n = 1;', context).exports).toEqual({ n: 1 });
  expect(load(name, 'exports.n = 2; // the end', context).exports).toEqual({ n: 2 });
});

test('a stack names the line and the column of the source', () => {
  const name = freshName();
  const stackOf = (source: string) => String(load(name, source, vm.createContext()).exports.stack);
  expect(stackOf('exports.stack = new Error().stack;')).toContain(`${name}:1:17`);
  expect(stackOf('\n  exports.stack = new Error().stack;')).toContain(`${name}:2:19`);
});

test('import() of a module loads what belongs to the test file that runs now', async () => {
  const name = freshName();
  for (const answer of ['one', 'other']) {
    const found = new vm.SyntheticModule(['answer'], function (this: vm.SyntheticModule) {
      this.setExport('answer', answer);
    });
    await found.link(() => found);
    await found.evaluate();
    const context = vm.createContext();
    const { exports } = load(name, "exports.late = import('late');", context, () => found);
    expect(await exports.late).toMatchObject({ answer });
  }
});
