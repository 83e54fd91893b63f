/** The variables with ports, and the variable with the address for each. */
const HOSTS = {
  PORT: 'HOST',
  METRICS_PORT: 'HOST',
  SERVICE_PORT: 'SERVICE_HOST',
  SERVICE_CONSOLE_PORT: 'SERVICE_CONSOLE_HOST',
} as const;

export type PortName = keyof typeof HOSTS;

/**
 * Returns a handler for the error that the port of the variable `name` cannot be opened. It prints one line without a
 * stack, since only the operator can change the address, and ends the process.
 */
export function cannotListen(name: PortName): (error: NodeJS.ErrnoException) => never {
  return ({ code, message }) => {
    const who = name.startsWith('SERVICE_') ? 'bot service' : 'relay';
    const hint = code === 'EADDRINUSE' ? `; set ${name} to another` : '';
    process.stderr.write(`The ${who} cannot listen on ${HOSTS[name]} and ${name}: ${message}${hint}\n`);
    process.exit(1);
  };
}
