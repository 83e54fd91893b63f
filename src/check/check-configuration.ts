import { listUsers } from '../authenticate/password/users.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { risksOf } from '../config/risks.ts';
import { type CheckReport, count } from './report.ts';

/** Checks a configuration that could be read. Returns whether the relay would start with it. */
export function checkConfiguration(config: Config, environment: Environment, report: CheckReport): boolean {
  const { demo, bots, authMode, usersFile } = config;
  const { add, note, problem } = report.about('configuration');
  const says = demo ? 'good, for the demo only: there is no bot service to reach' : 'good';
  add({
    state: demo ? 'note' : 'ok',
    says: `${says}; AUTH_MODE=${authMode}, ${count(bots.length, 'bot')} in BOTS`,
  });
  // The check of Redis reports this one.
  for (const risk of risksOf(config)) if (!risk.startsWith('REDIS_URL is not set')) note(risk);
  if (environment.NODE_TLS_REJECT_UNAUTHORIZED === '0') {
    const open =
      'NODE_TLS_REJECT_UNAUTHORIZED=0: everybody in between can read the key, and TLS proves nothing here';
    problem(open, 'Unset it, and name the CA in NODE_EXTRA_CA_CERTS.');
  }
  return demo || authMode !== 'password' || checkUsers(usersFile, report);
}

function checkUsers(path: string, report: CheckReport): boolean {
  const { ok, problem } = report.about('users');
  const advice = 'Make it with: npx bot-relay user add NAME';
  try {
    const users = listUsers(path).length;
    if (users > 0) ok(`${count(users, 'user')} in ${path}`);
    else problem(`no user in ${path}: nobody can sign in`, advice);
    return true;
  } catch (error) {
    problem(`USERS_FILE: ${(error as Error).message}`, advice);
    return false;
  }
}
