import { readFileSync } from 'node:fs';
import { askPassword, type Terminal } from '../authenticate/password/ask-password.ts';
import type { Environment } from '../config/environment.ts';
import { type Secret, secret } from '../secret.ts';
import type { CheckOptions } from './check-arguments.ts';

/** Masking a shorter text would mask half of what is printed; the passwords of the users file are longer. */
const MIN_HIDDEN_LENGTH = 8;

export interface SignInPassword {
  readonly password: Secret;
  /** The password, if it is to be masked in what is printed. */
  readonly hidden: readonly Secret[];
}

/**
 * The password to sign in with: from a file, the environment or the terminal; never an argument, which everybody
 * on the machine can see.
 * @throws Error in plain words if there is none
 */
export async function signInPassword(
  { user, passwordFile }: Pick<CheckOptions, 'user' | 'passwordFile'>,
  environment: Environment,
  terminal: Terminal,
): Promise<SignInPassword> {
  const text =
    passwordFile === undefined
      ? environment.CHECK_PASSWORD || (await typed(user, terminal))
      : fileText(passwordFile);
  if (text === '') throw new Error('The password is empty.');
  const password = secret(text);
  return { password, hidden: text.length < MIN_HIDDEN_LENGTH ? [] : [password] };
}

async function typed(user: string | undefined, terminal: Terminal): Promise<string> {
  if (terminal.input.isTTY) return askPassword(`Password of ${user}: `, terminal);
  throw new Error(
    'There is no terminal to ask for the password: set CHECK_PASSWORD or give --password-file.',
  );
}

function fileText(path: string): string {
  try {
    return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw new Error(`--password-file cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}
