import type { AddressInfo } from 'node:net';

/** Where the peer that this process is sends everything: the first argument. */
export const UPSTREAM_PORT = Number(process.argv[2]);
export const UPSTREAM = `http://127.0.0.1:${UPSTREAM_PORT}`;

/** Tells whoever started this process on which port it listens. */
export function listening(address: string | AddressInfo | null): void {
  process.stdout.write(`${JSON.stringify({ port: (address as AddressInfo).port })}\n`);
}
