import { readFileSync } from 'node:fs';
import { askPassword, type Terminal } from '../authenticate/password/ask-password.ts';
import type { Environment } from '../config/environment.ts';
import { type Secret, secret } from '../secret.ts';

/** A shorter password is not masked, since masking it could hide other text. Passwords of the users file are longer. */
const MIN_HIDDEN_LENGTH = 8;

export interface SignInPassword {
  readonly password: Secret;
  /** The password, if it is long enough to be masked. */
  readonly hidden: readonly Secret[];
}

/** Who signs in, and where the password may be. */
export interface PasswordSource {
  readonly user: string;
  /** The variable that may hold it. */
  readonly variable: string;
  /** The argument that may name a file, and the file that it names. */
  readonly option: string;
  readonly file: string | undefined;
}

/**
 * The password to sign in with: from a file, the environment or the terminal. It is never an argument, since everybody
 * on the machine can see those.
 * @throws Error in plain words if there is none
 */
export async function signInPassword(
  source: PasswordSource,
  environment: Environment,
  terminal: Terminal,
): Promise<SignInPassword> {
  const { file, variable, option } = source;
  const text =
    file === undefined ? environment[variable] || (await typed(source, terminal)) : fileText(option, file);
  if (text === '') throw new Error(`The password is empty: look at ${variable} or ${option}.`);
  const password = secret(text);
  return { password, hidden: text.length < MIN_HIDDEN_LENGTH ? [] : [password] };
}

async function typed({ user, variable, option }: PasswordSource, terminal: Terminal): Promise<string> {
  if (terminal.input.isTTY) return askPassword(`Password of ${user}: `, terminal);
  throw new Error(`There is no terminal to ask for the password: set ${variable} or give ${option}.`);
}

function fileText(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw new Error(`${option} cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}
