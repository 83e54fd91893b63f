import type { AddressInfo } from 'node:net';

/** The port of the upstream, from the first argument of this process. */
export const UPSTREAM_PORT = Number(process.argv[2]);
export const UPSTREAM = `http://127.0.0.1:${UPSTREAM_PORT}`;

/** Prints the port on which this process listens, for the process that started it. */
export function listening(address: string | AddressInfo | null): void {
  process.stdout.write(`${JSON.stringify({ port: (address as AddressInfo).port })}\n`);
}
