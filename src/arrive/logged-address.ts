import { createHmac, hkdfSync } from 'node:crypto';
import type { Request } from 'express';
import type { Config } from '../config/config.ts';
import { clientAddress } from '../http/client-address.ts';
import type { Secret } from '../secret.ts';

/** 96 bits, in base64url. */
const HASH_LENGTH = 16;

/**
 * Makes the function that names the client of a request in the log, as LOG_ADDRESSES says: by the address that limits
 * count, by a hash of it, or not at all. The hash has a key, since a plain one could be found by trying all addresses.
 */
export function loggedAddress({
  logAddresses,
  session,
}: Pick<Config, 'logAddresses' | 'session'>): (req: Request) => string | undefined {
  if (logAddresses === 'on') return clientAddress;
  if (logAddresses === 'off') return () => undefined;
  const [key] = session.secrets.map(keyOf) as [Uint8Array];
  return (req) =>
    createHmac('sha256', key).update(clientAddress(req)).digest('base64url').slice(0, HASH_LENGTH);
}

function keyOf(secret: Secret): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', secret.open(), '', 'bot-relay logged address', 32));
}
