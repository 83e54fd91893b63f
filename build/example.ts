import { cpSync, existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const pathOf = (name: string) => fileURLToPath(new URL(`../${name}`, import.meta.url));

/** What a run of an example leaves in its folder. */
const MADE = [
  ...['node_modules', 'package-lock.json', 'bot-relay-client.tgz'],
  ...['dist', '.next', 'next-env.d.ts'],
];

const isEmptyFolder = (path: string) => statSync(path).isDirectory() && readdirSync(path).length === 0;

/** Copies an example, with the client of the last build, into a folder. Returns a text that says why, if it cannot. */
function copyExample([name = '', folder = '', ...more]: readonly string[]): string | undefined {
  const names = readdirSync(pathOf('examples'));
  if (!folder || more.length > 0)
    return `Usage: npm run example -- NAME DIR\nNAME is one of: ${names.join(', ')}`;
  if (!names.includes(name)) return `There is no example ${name}. There are: ${names.join(', ')}.`;
  // npm runs its scripts in the checkout, and names the folder in which it was called.
  const target = resolve(process.env.INIT_CWD ?? '', folder);
  if (existsSync(target) && !isEmptyFolder(target)) return `${target} is not an empty folder.`;
  const filter = (path: string) => !MADE.includes(basename(path));
  cpSync(pathOf(`examples/${name}`), target, { recursive: true, filter });
  cpSync(pathOf('dist/bot-relay-client.tgz'), `${target}/bot-relay-client.tgz`);
  writeFileSync(`${target}/.gitignore`, 'node_modules/\ndist/\n.next/\nnext-env.d.ts\n');
  console.log(`The example is in ${target}. There, run: npm install`);
  return undefined;
}

const refusal = copyExample(process.argv.slice(2));
if (refusal !== undefined) {
  console.error(refusal);
  process.exitCode = 1;
}
