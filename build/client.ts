import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import { ENTRIES } from './entries.ts';

/** The oldest browsers that the client supports. */
const BROWSERS = ['chrome123', 'firefox128', 'safari17.5'];
/** The element in one file, for a page without a bundler. */
const ELEMENT_FILE = { 'bot-chat': 'element/bot-chat-file' };
/** The name of the package that a file belongs to. */
const PACKAGE = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/;

const root = new URL('../', import.meta.url);
const pathOf = (name: string) => fileURLToPath(new URL(name, root));
const read = (name: string) => readFileSync(pathOf(name), 'utf8');
const fields = (name: string) => JSON.parse(read(name)) as Readonly<Record<string, unknown>>;
const node = (command: readonly string[], stdout: 'inherit' | 'pipe') =>
  execFileSync(process.execPath, command, {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', stdout, 'inherit'],
  });

/** Options of `marked` that are never set. */
const UNSET = ['pedantic', 'extensions', 'hooks'];

/**
 * Takes the part of `marked` that makes HTML out of the bundles: its instance at the end of the file keeps the bundler
 * from leaving out what nothing uses. Code for the options `UNSET` is taken out, too.
 */
const lexerAlone: Plugin = {
  name: 'lexer-alone',
  setup: ({ onLoad }) =>
    onLoad({ filter: /marked\.esm\.js$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const [instance = ''] = /;var \w+=new \w+;function /.exec(text) ?? [];
      const exported = text.slice(text.lastIndexOf('export{')).match(/\w+ as (Lexer|Tokenizer)\b/g) ?? [];
      let lexer = text.slice(0, text.indexOf(instance));
      const reads = UNSET.map((option) => RegExp(`\\bthis\\.options\\.${option}\\b`, 'g'));
      const isKnown = reads.every((one) => lexer.search(one) >= 0);
      if (!instance || exported.length < 2 || !isKnown)
        throw new Error('marked has another form: see lexerAlone');
      for (const one of reads) lexer = lexer.replace(one, 'null');
      return { contents: `${lexer};export{${exported}}` };
    }),
};

/**
 * Bundles modules of the client into `outdir`, by the name of each entry. All entries share their chunks. Returns the
 * names of the packages that are now in them.
 */
async function bundle(
  outdir: string,
  entries: Readonly<Record<string, string>>,
  options: Pick<BuildOptions, 'external' | 'minify' | 'footer'>,
): Promise<string[]> {
  const { metafile } = await build({
    entryPoints: Object.entries(entries).map(([out, name]) => ({ in: pathOf(`src/client/${name}.ts`), out })),
    outdir: pathOf(outdir),
    bundle: true,
    splitting: true,
    format: 'esm',
    target: BROWSERS,
    logLevel: 'warning',
    metafile: true,
    plugins: [lexerAlone],
    ...options,
  });
  const names = Object.keys(metafile.inputs).flatMap((path) => PACKAGE.exec(path)?.[1] ?? []);
  return [...new Set(names)];
}

rmSync(pathOf('dist/client'), { recursive: true, force: true });
const contained = await bundle('dist/client', ENTRIES, { external: ['react'] });
node(['node_modules/typescript/bin/tsc', '-p', 'src/client'], 'inherit');

const { version } = fields('package.json');
writeFileSync(
  pathOf('dist/client/package.json'),
  `${JSON.stringify({ ...fields('src/client/package.json'), version }, null, 2)}\n`,
);
cpSync(pathOf('LICENSE'), pathOf('dist/client/LICENSE'));
/** The licenses of packages that a bundle contains. */
const noticesOf = (names: readonly string[]) =>
  names
    .map((name) => {
      const folder = `node_modules/${name}`;
      const contains = name === 'marked' ? 'It contains parts of' : 'It contains';
      return `${contains} ${name} ${fields(`${folder}/package.json`).version}:\n\n${read(`${folder}/LICENSE`)}`;
    })
    .join('\n');
writeFileSync(pathOf('dist/client/NOTICES.txt'), noticesOf(contained));
// Beside the file, which each page loads: they are larger than many of its parts.
const own = await bundle('dist', ELEMENT_FILE, {
  minify: true,
  footer: {
    js: '/* Contains parts of marked. Licenses of what it contains: bot-chat.txt beside this file */',
  },
});
writeFileSync(pathOf('dist/bot-chat.txt'), noticesOf(own));

// Packed here and not when it is asked for, so that all instances of an image serve the same bytes.
/** npm itself, which runs this script. */
const npm = process.env.npm_execpath ?? '';
const pack = ['pack', './dist/client', '--pack-destination', 'dist', '--silent', '--ignore-scripts'];
const packed = node([npm, ...pack], 'pipe');
renameSync(pathOf(`dist/${packed.trim()}`), pathOf('dist/bot-relay-client.tgz'));
