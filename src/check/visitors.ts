import type { Terminal } from '../authenticate/password/ask-password.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import type { Secret } from '../secret.ts';
import type { CheckOptions } from './check-arguments.ts';
import { signInPassword } from './sign-in-password.ts';
import type { Visitor } from './through-context.ts';

/** Who signs in during a check. */
export interface Visitors {
  /** Without one, only what needs no session is checked. */
  readonly visitor: Visitor | undefined;
  /** The second user, who must not see what the first one has. */
  readonly otherVisitor: Visitor | undefined;
  /** The passwords that are long enough to be masked. */
  readonly hidden: readonly Secret[];
}

/**
 * The two visitors: the users that the arguments name, two guests, or nobody if signing in needs a browser.
 * @throws Error in plain words if there is no password for a user
 */
export async function visitorsOf(
  mode: Config['authMode'],
  options: CheckOptions,
  { environment, terminal }: { readonly environment: Environment; readonly terminal: Terminal },
): Promise<Visitors> {
  if (mode === 'guest') return { visitor: 'guest', otherVisitor: 'guest', hidden: [] };
  const hidden: Secret[] = [];
  const withPassword = async (
    user: string | undefined,
    from: { readonly variable: string; readonly option: string; readonly file: string | undefined },
  ): Promise<Visitor | undefined> => {
    if (mode !== 'password' || user === undefined) return undefined;
    const signIn = await signInPassword({ user, ...from }, environment, terminal);
    hidden.push(...signIn.hidden);
    return { user, password: signIn.password };
  };
  const { user, passwordFile, otherUser, otherPasswordFile } = options;
  const visitor = await withPassword(user, {
    ...{ variable: 'CHECK_PASSWORD', option: '--password-file', file: passwordFile },
  });
  const otherVisitor = await withPassword(otherUser, {
    ...{ variable: 'CHECK_OTHER_PASSWORD', option: '--other-password-file', file: otherPasswordFile },
  });
  return { visitor, otherVisitor, hidden };
}
