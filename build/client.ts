import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { type BuildOptions, build, type Metafile, type Plugin } from 'esbuild';
import { ENTRIES } from './entries.ts';

/** The oldest browsers that the client supports. */
const BROWSERS = ['chrome123', 'firefox128', 'safari17.5'];
/** The element for a page without a bundler: one file, and chunks that it loads when it needs them. */
const ELEMENT_FILE = { 'bot-chat': 'element/bot-chat-file' };
/** The folder of the package that a file belongs to. */
const PACKAGE = /.*node_modules\/(?:@[^/]+\/)?[^/]+/;

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

/** Modules of the client, by the names of their files. */
type Entries = Readonly<Record<string, string>>;
const sourceOf = (name: string) => pathOf(`src/client/${name}.ts`);

type Options = Pick<BuildOptions, 'external' | 'minify' | 'footer'>;

/** The folders of the packages that are in a bundle. */
const packagesIn = ({ inputs }: Metafile) => Object.keys(inputs).flatMap((path) => PACKAGE.exec(path) ?? []);

/**
 * Bundles each module that is imported dynamically on its own, with a hash in its name. Else esbuild would put what it has
 * in common with the entries into chunks that they all load at once, even if they need nothing of them. One that is an entry
 * itself, as the element is for `<BotChat>`, is loaded as that.
 */
function bundledApart(options: BuildOptions, entries: Entries, packages: string[]): Plugin {
  return {
    name: 'bundled-apart',
    setup: ({ onResolve }) =>
      onResolve({ filter: /\.ts$/ }, async ({ kind, path, resolveDir }) => {
        if (kind !== 'dynamic-import') return undefined;
        const file = join(resolveDir, path);
        const [entry] = Object.entries(entries).find(([, name]) => file === sourceOf(name)) ?? [];
        if (entry) return { path: `./${entry}.js`, external: true };
        const entryPoints = [file];
        const { metafile } = await build({
          ...options,
          entryPoints,
          entryNames: '[name]-[hash]',
          metafile: true,
        });
        packages.push(...packagesIn(metafile));
        return { path: `./${basename(Object.keys(metafile.outputs).join())}`, external: true };
      }),
  };
}

/**
 * Bundles modules of the client into `outdir`, by the name of each entry. All entries share their chunks. Returns the
 * folders of the packages that are now in them.
 */
async function bundle(outdir: string, entries: Entries, own: Options): Promise<string[]> {
  const options: BuildOptions = {
    outdir: pathOf(outdir),
    bundle: true,
    format: 'esm',
    target: BROWSERS,
    logLevel: 'warning',
    ...own,
  };
  const packages: string[] = [];
  const { metafile } = await build({
    ...options,
    entryPoints: Object.entries(entries).map(([out, name]) => ({ in: sourceOf(name), out })),
    splitting: true,
    metafile: true,
    plugins: [bundledApart(options, entries, packages)],
  });
  return [...new Set([...packages, ...packagesIn(metafile)])].sort();
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
const noticesOf = (folders: readonly string[]) =>
  folders
    .map((folder) => {
      const { name, version } = fields(`${folder}/package.json`);
      const license = readdirSync(pathOf(folder)).find((file) => /^licen[cs]e/i.test(file));
      return `It contains ${name} ${version}:\n\n${read(`${folder}/${license}`)}`;
    })
    .join('\n');
writeFileSync(pathOf('dist/client/NOTICES.txt'), noticesOf(contained));
// Beside the files, which each page loads: they are larger than many of their parts.
rmSync(pathOf('dist/bot-chat'), { recursive: true, force: true });
const own = await bundle('dist/bot-chat', ELEMENT_FILE, {
  minify: true,
  footer: { js: '/* Licenses of what it contains: bot-chat.txt beside this file */' },
});
writeFileSync(pathOf('dist/bot-chat/bot-chat.txt'), noticesOf(own));
for (const name of readdirSync(pathOf('dist/bot-chat'))) {
  const file = pathOf(`dist/bot-chat/${name}`);
  const content = readFileSync(file);
  writeFileSync(`${file}.br`, brotliCompressSync(content));
  writeFileSync(`${file}.gz`, gzipSync(content, { level: 9 }));
}

// Packed here and not when it is asked for, so that all instances of an image serve the same bytes.
/** npm itself, which runs this script. */
const npm = process.env.npm_execpath ?? '';
const pack = ['pack', './dist/client', '--pack-destination', 'dist', '--silent', '--ignore-scripts'];
const packed = node([npm, ...pack], 'pipe');
renameSync(pathOf(`dist/${packed.trim()}`), pathOf('dist/bot-relay-client.tgz'));
