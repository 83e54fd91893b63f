import { readFileSync } from 'node:fs';

/** Exit codes of sysexits.h: wrong arguments, and something set up so that starting again mends nothing. */
const EX_USAGE = 64;
const EX_CONFIG = 78;

interface Command {
  /** How to use it, if it takes arguments of its own. */
  readonly USAGE?: string;
  /** Returns the exit code; nothing if what it has started goes on. */
  run(args: readonly string[]): Promise<number | undefined>;
}

/** Where each command is. All are loaded late: an older Node.js fails in one in a way that says nothing of its age. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  '--check-config': () => import('./process/check-config.ts'),
  user: () => import('./commands/user.ts'),
  keys: () => import('./commands/keys.ts'),
  check: () => import('./check/check-command.ts'),
  'demo-bot': () => import('./process/demo-bot.ts'),
  worker: () => import('./process/worker.ts'),
};
const serve = (): Promise<Command> => import('./process/serve.ts');

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const { version, engines } = manifest as { version: string; engines: { node: string } };
if (meets(process.versions.node, engines.node)) {
  process.exitCode = await runCommand(process.argv.slice(2));
} else {
  process.stderr.write(
    `bot-relay runs on Node.js ${engines.node}, and this is Node.js ${process.versions.node} (${process.execPath}).\n`,
  );
  process.exitCode = EX_CONFIG;
}

async function runCommand(args: readonly string[]): Promise<number | undefined> {
  const [name, ...rest] = args;
  const load = name === undefined ? serve : Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  const usage = async () => (await load?.())?.USAGE ?? (await import('./commands/usage.ts')).USAGE;
  const asksFor = (...names: string[]) => args.some((arg) => names.includes(arg));
  if (asksFor('--help', '-h')) {
    process.stdout.write(await usage());
    return 0;
  }
  if (asksFor('--version', '-v')) {
    process.stdout.write(`${version}\n`);
    return 0;
  }
  const command = await load?.();
  const exitCode = command ? await command.run(rest) : EX_USAGE;
  // One that has a usage of its own has said it.
  if (exitCode === EX_USAGE && !command?.USAGE) process.stderr.write(await usage());
  return exitCode;
}

/** Whether a version is in a range of npm that consists of `>=` and `^`, joined by `||`. */
function meets(version: string, range: string): boolean {
  const is = numbers(version);
  return range.split('||').some((part) => {
    const least = numbers(part);
    if (part.includes('^') && is[0] !== least[0]) return false;
    const at = least.findIndex((number, index) => number !== is[index]);
    return at < 0 || (is[at] ?? 0) > (least[at] ?? 0);
  });
}

function numbers(text: string): number[] {
  return (text.match(/\d+/g) ?? []).slice(0, 3).map(Number);
}
