import type { Environment } from './environment.ts';

/** Where `bot-relay service` listens. In the demo, the relay's own service takes a free port. */
const OF_COMMAND = ['SERVICE_HOST', 'SERVICE_PORT'];
const OF_CONSOLE = ['SERVICE_CONSOLE_HOST', 'SERVICE_CONSOLE_URL'];

/** The variables of the bot service of this project that have no effect in a relay, as risks in plain words. */
export function unusedOfService(environment: Environment): string[] {
  const { UPSTREAM_BASE_URL, SERVICE_CONSOLE_PORT } = environment;
  const set = Object.keys(environment).filter((name) => name.startsWith('SERVICE_') && environment[name]);
  if (UPSTREAM_BASE_URL) {
    const why = 'for the bot service of this project, but UPSTREAM_BASE_URL names another one';
    return told(set, `${why}: they do nothing here`);
  }
  return [
    ...told(
      set.filter((name) => OF_COMMAND.includes(name)),
      'for bot-relay service alone: the service of the demo listens on a free port',
    ),
    ...(SERVICE_CONSOLE_PORT
      ? []
      : told(
          set.filter((name) => OF_CONSOLE.includes(name)),
          'SERVICE_CONSOLE_PORT is not set, so there is no console',
        )),
  ];
}

const told = (names: readonly string[], why: string) =>
  names.length > 0 ? [`${names.join(', ')}: ${why}`] : [];
