/**
 * Returns a handler for the error that the port of the variable `name` cannot be opened. It prints one line without a
 * stack, since only the operator can change the address, and ends the process.
 */
export function cannotListen(name: 'PORT' | 'METRICS_PORT'): (error: NodeJS.ErrnoException) => never {
  return ({ code, message }) => {
    const hint = code === 'EADDRINUSE' ? `; set ${name} to another` : '';
    process.stderr.write(`The relay cannot listen on HOST and ${name}: ${message}${hint}\n`);
    process.exit(1);
  };
}
