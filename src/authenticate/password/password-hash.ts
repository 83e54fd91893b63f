import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

const derive = promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt);

/** OWASP's scrypt parameters for 32 MiB: N = 2^15, r = 8, p = 3. They are used for new hashes. */
const SLOW = { ln: 15, r: 8, p: 3 };
const HASH_BYTES = 32;
const FORM = /^\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{22,86})\$([A-Za-z0-9+/]{43})$/;

/** Parameters for a password that is no secret, such as the demo's. */
export const QUICK = { ln: 4, r: 1, p: 1 };

/** The hash of `password` as text, with its parameters and salt (PHC string format). */
export async function hashPassword(password: string, { ln, r, p } = SLOW): Promise<string> {
  const salt = randomBytes(16);
  const hash = await derive(password.normalize('NFC'), salt, HASH_BYTES, cost(ln, r, p));
  return `$scrypt$ln=${ln},r=${r},p=${p}$${base64(salt)}$${base64(hash)}`;
}

/** Whether `password` has the hash `stored`. False if `stored` was not made by `hashPassword`. */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const parts = FORM.exec(stored);
  if (!parts) return false;
  const [, ln, r, p, salt = '', hash = ''] = parts;
  const expected = Buffer.from(hash, 'base64');
  const actual = await derive(
    password.normalize('NFC'),
    Buffer.from(salt, 'base64'),
    expected.length,
    cost(Number(ln), Number(r), Number(p)),
  );
  return timingSafeEqual(actual, expected);
}

/** Whether `stored` has the form that `hashPassword` writes. */
export function isPasswordHash(stored: string): boolean {
  return FORM.test(stored);
}

function cost(ln: number, r: number, p: number): ScryptOptions {
  const N = 2 ** ln;
  return { N, r, p, maxmem: 128 * N * r + 128 * r * p + 2 ** 20 };
}

function base64(bytes: Buffer): string {
  return bytes.toString('base64').replace(/=+$/, '');
}
