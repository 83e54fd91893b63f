import type { IncomingHttpHeaders } from 'node:http';
import { readCredentials, type Users } from '../authenticate/password/users.ts';
import { describeSession, type Sessions } from '../authenticate/sessions/sessions.ts';
import { Problem } from '../errors.ts';
import type { BodyOptions } from '../http/body.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-connection.ts';
import { readJson } from '../http/read-json.ts';
import type { LoginAttempts } from '../pace/login-attempts.ts';
import type { LimitByAddress } from '../pace/request-limits.ts';
import type { Steps } from './route.ts';

export interface PasswordRoute {
  readonly limitByAddress: LimitByAddress;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly body: BodyOptions;
  readonly attempts: LoginAttempts;
  readonly users: Users;
  readonly sessions: Pick<Sessions, 'begin'>;
}

/**
 * `POST /auth/login`: checks the password and begins a session with a new id; the session of the request's cookie is
 * removed. If the client leaves while it waits, its password is not checked.
 */
export function passwordLogin(route: PasswordRoute): Steps {
  const { attempts, users, sessions } = route;
  return async function passwordLogin(req, res) {
    await route.limitByAddress(req, res);
    route.checkOrigin(req.headers);
    const { value } = await readJson(req, route.body);
    const given = readCredentials(value);
    const by = { address: clientAddress(req), account: given?.username ?? '' };
    // Any other text may be a password in the wrong field.
    res.locals.account = users.has(by.account) ? by.account : '?';
    await attempts.refuse(req, res, by);
    const { signal } = abortWhenLeft(res);
    const check = async () => given && users.verify(given.username, given.password);
    const user = await attempts.attempt(by, check, signal);
    signal.throwIfAborted();
    if (!user) throw new Problem('invalid_credentials', 'The user name or the password is wrong.');
    const session = await sessions.begin(req, res, { user });
    res.locals.userId = user.id;
    res.json(describeSession(session));
  };
}
