import { listUsers } from '../authenticate/password/users.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { risksOf } from '../config/risks.ts';
import type { Report } from './findings.ts';
import { count } from './print-findings.ts';

const CHECK = 'configuration';

/** Reports every problem of a configuration that cannot be used. */
export function reportConfigProblems(problems: readonly string[], report: Report): void {
  for (const says of problems) {
    report({
      state: 'problem',
      check: CHECK,
      says,
      advice: 'Mend it in the environment or in .env; docs/configuration.md lists the variables.',
    });
  }
}

/** Checks a configuration that could be read. Returns whether the relay would start with it. */
export function checkConfiguration(config: Config, environment: Environment, report: Report): boolean {
  const { demo, bots, authMode } = config;
  const says = demo ? 'good, for the demo only: there is no bot service to reach' : 'good';
  report({
    state: demo ? 'note' : 'ok',
    check: CHECK,
    says: `${says}; AUTH_MODE=${authMode}, ${count(bots.length, 'bot')} in BOTS`,
  });
  // The check of Redis reports this one.
  const risks = risksOf(config).filter((risk) => !risk.startsWith('REDIS_URL is not set'));
  for (const risk of risks) report({ state: 'note', check: CHECK, says: risk });
  if (environment.NODE_TLS_REJECT_UNAUTHORIZED === '0') {
    report({
      state: 'problem',
      check: CHECK,
      says: 'NODE_TLS_REJECT_UNAUTHORIZED=0: everybody in between can read the key, and TLS proves nothing here',
      advice: 'Unset it, and name the CA in NODE_EXTRA_CA_CERTS.',
    });
  }
  return demo || authMode !== 'password' || checkUsers(config.usersFile, report);
}

function checkUsers(path: string, report: Report): boolean {
  const advice = 'Make it with: npx bot-relay user add NAME';
  try {
    const users = listUsers(path).length;
    const says = users > 0 ? `${count(users, 'user')} in ${path}` : `no user in ${path}: nobody can sign in`;
    report({ state: users > 0 ? 'ok' : 'problem', check: 'users', says, ...(users === 0 && { advice }) });
    return true;
  } catch (error) {
    report({ state: 'problem', check: 'users', says: `USERS_FILE: ${(error as Error).message}`, advice });
    return false;
  }
}
