import { readFileSync } from 'node:fs';

/** Exit codes of sysexits.h: wrong arguments; a wrong setup, which another start would not mend. */
const EX_USAGE = 64;
const EX_CONFIG = 78;

interface Command {
  /** Its own usage text, if it takes arguments. */
  readonly USAGE?: string;
  /** Returns the exit code, or nothing if the command goes on running. */
  run(args: readonly string[]): Promise<number | undefined>;
}

/** Loads each command. This is done after the check of the version: an older Node.js would fail without naming the reason. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  '--check-config': () => import('./process/check-config.ts'),
  user: () => import('./commands/user.ts'),
  keys: () => import('./commands/keys.ts'),
  'channel-id': () => import('./commands/channel-id.ts'),
  check: () => import('./check/check-command.ts'),
  'demo-bot': () => import('./process/demo-bot.ts'),
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
  // A command with its own usage has printed it.
  if (exitCode === EX_USAGE && !command?.USAGE) process.stderr.write(await usage());
  return exitCode;
}

/** Whether a version is in an npm range that consists of `>=` and `^`, joined by `||`. */
function meets(version: string, range: string): boolean {
  const actual = numbers(version);
  return range.split('||').some((part) => {
    const least = numbers(part);
    if (part.includes('^') && actual[0] !== least[0]) return false;
    const different = least.findIndex((number, index) => number !== actual[index]);
    return different < 0 || (actual[different] ?? 0) > (least[different] ?? 0);
  });
}

function numbers(text: string): number[] {
  return (text.match(/\d+/g) ?? []).slice(0, 3).map(Number);
}
