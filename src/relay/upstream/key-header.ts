import type { Secret } from '../../secret.ts';

/** The header by which the bot service knows the relay: its name and, opened, its value. */
export function keyHeader(key: Secret): [name: string, value: string] {
  return ['X-API-KEY', key.open()];
}
