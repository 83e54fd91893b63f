import { ConfigError } from '../config/config.ts';
import { BUILD } from '../process/build-info.ts';
import { EX_USAGE, USAGE } from './usage.ts';

/** Exit code of sysexits.h: the configuration is wrong, and another start would not help. */
const EX_CONFIG = 78;

interface Command {
  readonly USAGE: string;
  /**
   * Returns the exit code, or nothing if the command goes on running. Of wrong arguments it prints the usage.
   * @throws ConfigError if the configuration is wrong
   */
  run(args: readonly string[]): Promise<number | undefined>;
}

/** The commands by the argument that names them. Each is loaded when it is asked for. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  '--check-config': () => import('./check-config.ts'),
  check: () => import('./check.ts'),
  user: () => import('./user.ts'),
  keys: () => import('./keys.ts'),
  'channel-id': () => import('./channel-id.ts'),
  service: () => import('./service.ts'),
};

/** Runs the command that the arguments name; without one, the relay. Returns the exit code, or nothing while it runs. */
export async function runCommand(args: readonly string[]): Promise<number | undefined> {
  const [name, ...rest] = args;
  const command = await (name === undefined ? import('./start.ts') : commandOf(name));
  const asksFor = (...flags: string[]) => args.some((arg) => flags.includes(arg));
  if (asksFor('--help', '-h')) {
    process.stdout.write(command?.USAGE ?? USAGE);
    return 0;
  }
  if (asksFor('--version', '-v')) {
    process.stdout.write(`${BUILD.version}\n`);
    return 0;
  }
  if (!command) {
    process.stderr.write(USAGE);
    return EX_USAGE;
  }
  try {
    return await command.run(rest);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return EX_CONFIG;
  }
}

async function commandOf(name: string): Promise<Command | undefined> {
  return Object.hasOwn(COMMANDS, name) ? COMMANDS[name]?.() : undefined;
}
