/**
 * Makes what to do where the port of the variable `name` cannot be had. The address is the operator's to mend: one
 * line says it, with no stack, and the process ends.
 */
export function cannotListen(name: 'PORT' | 'METRICS_PORT'): (error: NodeJS.ErrnoException) => never {
  return ({ code, message }) => {
    const hint = code === 'EADDRINUSE' ? `; set ${name} to another` : '';
    process.stderr.write(`The relay cannot listen on HOST and ${name}: ${message}${hint}\n`);
    process.exit(1);
  };
}
