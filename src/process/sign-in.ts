import { hashPassword, QUICK } from '../authenticate/password/password-hash.ts';
import { type Users, usersFromFile, usersOf as usersIn } from '../authenticate/password/users.ts';
import { type Config, ConfigError } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import type { SignIn } from '../routes/dependencies.ts';

/**
 * Builds what the sign-in mode of `config` needs, and loads its libraries. `users`, if given, replace those of the users
 * file.
 * @throws ConfigError if the users file cannot be used
 */
export async function signInOf(config: Config, logger: Logger, users?: Users): Promise<SignIn> {
  const { authMode: mode } = config;
  switch (mode) {
    case 'oidc': {
      const { providerOf } = await import('../authenticate/oidc/identity-provider.ts');
      const { signInFlows } = await import('../authenticate/oidc/sign-in-flows.ts');
      return { mode, provider: providerOf(config, logger), signInFlows };
    }
    case 'guest':
      return { mode };
    case 'password':
      return { mode, users: users ?? (await usersOf(config, logger)) };
  }
}

function usersOf(config: Config, logger: Logger): Promise<Users> {
  return config.demo ? demoUsers() : usersOfFile(config, logger);
}

async function usersOfFile({ usersFile }: Config, logger: Logger): Promise<Users> {
  try {
    return await usersFromFile(usersFile, (err) => logger.error({ err }, 'users file not used'));
  } catch (error) {
    const problem = `USERS_FILE: ${(error as Error).message}. Make it with: npx bot-relay user add NAME`;
    throw new ConfigError([problem], problem);
  }
}

async function demoUsers(): Promise<Users> {
  const { DEMO_USER } = await import('./demo.ts');
  // The password stands in the README.
  const hash = await hashPassword(DEMO_USER.password, QUICK);
  return usersIn(() => new Map([[DEMO_USER.name, hash]]), hash);
}
