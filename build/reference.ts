import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ENTRIES } from './entries.ts';

/** Writes the reference of the client to `docs/api`, or to the folder that is named. Any warning of TypeDoc fails. */
const [out = pathOf('../docs/api')] = process.argv.slice(2);
const files = Object.values(ENTRIES).map((name) => pathOf(`../src/client/${name}.ts`));
const typedoc = [pathOf('reference/node_modules/typedoc/bin/typedoc'), '--logLevel', 'Warn'];
const options = ['--options', pathOf('reference/typedoc.json'), '--out', out];
const { status } = spawnSync(process.execPath, [...typedoc, ...options, ...files], { stdio: 'inherit' });
process.exitCode = status ?? 1;

function pathOf(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}
