import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build } from 'esbuild';

/** The oldest browsers that the client supports. */
const BROWSERS = ['chrome111', 'firefox115', 'safari16.4'];
/** The entries of the package: `exports` of its package.json names the files. */
const ENTRIES = { index: 'index', react: 'react', element: 'element/bot-chat' };
/** The element in one file, for a page without a bundler. */
const ELEMENT_FILE = { 'bot-chat': 'element/bot-chat-file' };
/** What the chat page uses of the client; not all of it is an entry of the package. */
const PAGE_ENTRIES = {
  'bot-relay-client': 'bot-client',
  'bot-relay-conversation': 'bot-conversation',
  'bot-relay-history': 'follow-history',
  'bot-relay-resumed': 'resumed-answers',
  'bot-relay-random-id': 'random-id',
};

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

/**
 * Bundles modules of the client into `outdir`, by the name of each entry. All entries share their chunks. Returns the
 * names of the packages that are now in them.
 */
async function bundle(
  outdir: string,
  entries: Readonly<Record<string, string>>,
  options: Pick<BuildOptions, 'chunkNames' | 'external' | 'minify' | 'footer'>,
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
    ...options,
  });
  const names = Object.keys(metafile.inputs).flatMap((path) => PACKAGE.exec(path)?.[1] ?? []);
  return [...new Set(names)];
}

rmSync(pathOf('dist/client'), { recursive: true, force: true });
rmSync(pathOf('dist/page/files'), { recursive: true, force: true });
cpSync(pathOf('src/page/files'), pathOf('dist/page/files'), { recursive: true });
await bundle('dist/page/files', PAGE_ENTRIES, { chunkNames: 'bot-relay-chunk-[hash]' });
const contained = await bundle('dist/client', ENTRIES, { external: ['react'] });
node(['node_modules/typescript/bin/tsc', '-p', 'src/client'], 'inherit');

const { version } = fields('package.json');
writeFileSync(
  pathOf('dist/client/package.json'),
  `${JSON.stringify({ ...fields('src/client/package.json'), version }, null, 2)}\n`,
);
cpSync(pathOf('LICENSE'), pathOf('dist/client/LICENSE'));
const notices = contained.map((name) => {
  const folder = `node_modules/${name}`;
  return `This package contains ${name} ${fields(`${folder}/package.json`).version}:\n\n${read(`${folder}/LICENSE`)}`;
});
writeFileSync(pathOf('dist/client/NOTICES.txt'), notices.join('\n'));
await bundle('dist', ELEMENT_FILE, { minify: true, footer: { js: `/*\n${notices.join('\n')}*/` } });

// Packed here and not when it is asked for, so that all instances of an image serve the same bytes.
/** npm itself, which runs this script. */
const npm = process.env.npm_execpath ?? '';
const pack = ['pack', './dist/client', '--pack-destination', 'dist', '--silent', '--ignore-scripts'];
const packed = node([npm, ...pack], 'pipe');
renameSync(pathOf(`dist/${packed.trim()}`), pathOf('dist/bot-relay-client.tgz'));
