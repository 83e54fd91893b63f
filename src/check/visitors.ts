import { readFileSync } from 'node:fs';
import { askPassword, type Terminal } from '../authenticate/password/ask-password.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { type Secret, secret } from '../secret.ts';
import type { UserOption } from './check-arguments.ts';
import type { CheckReport } from './report.ts';

/** A shorter password is not masked, since masking it could hide other text. Passwords of the users file are longer. */
const MIN_HIDDEN_LENGTH = 8;

/** Who signs in: a user with a password, or a guest. */
export type Visitor = { readonly user: string; readonly password: Secret } | 'guest';

/** Who signs in during a check. */
export interface Visitors {
  /** Without one, only what needs no session is checked. */
  readonly visitor: Visitor | undefined;
  /** The second user, who must not reach what the first one has. */
  readonly otherVisitor: Visitor | undefined;
}

export interface VisitorsContext {
  readonly environment: Environment;
  readonly terminal: Terminal;
  /** Hides the passwords. */
  readonly report: Pick<CheckReport, 'hide'>;
}

/**
 * The two visitors: the users that the arguments name, two guests, or nobody if signing in needs a browser.
 * @throws Error in plain words if there is no password for a user
 */
export async function visitorsOf(
  mode: Config['authMode'],
  users: readonly UserOption[],
  context: VisitorsContext,
): Promise<Visitors> {
  if (mode === 'guest') return { visitor: 'guest', otherVisitor: 'guest' };
  const visitors: Visitor[] = [];
  for (const user of mode === 'password' ? users : [])
    visitors.push({ user: user.name, password: await passwordOf(user, context) });
  const [visitor, otherVisitor] = visitors;
  return { visitor, otherVisitor };
}

/** From a file, the environment or the terminal. It is never an argument: everybody on the machine can see those. */
async function passwordOf(
  { name, variable, option, file }: UserOption,
  { environment, terminal, report }: VisitorsContext,
): Promise<Secret> {
  let text = file === undefined ? environment[variable] : textOf(option, file);
  if (file === undefined && !text) {
    if (!terminal.input.isTTY)
      throw new Error(`There is no terminal to ask for the password: set ${variable} or give ${option}.`);
    text = await askPassword(`Password of ${name}: `, terminal);
  }
  if (!text) throw new Error(`The password is empty: look at ${variable} or ${option}.`);
  const password = secret(text);
  if (text.length >= MIN_HIDDEN_LENGTH) report.hide(password);
  return password;
}

function textOf(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw new Error(`${option} cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}
