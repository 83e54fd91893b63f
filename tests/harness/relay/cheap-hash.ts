import { scryptSync } from 'node:crypto';

/** Makes a hash like `hashPassword`, but cheap, so that signing in does not slow the tests down. */
export function cheapHash(password: string): string {
  const unpadded = (bytes: Buffer) => bytes.toString('base64').replace(/=+$/, '');
  const salt = Buffer.alloc(16, 1);
  const hash = scryptSync(password.normalize('NFC'), salt, 32, { N: 2, r: 1, p: 1 });
  return `$scrypt$ln=1,r=1,p=1$${unpadded(salt)}$${unpadded(hash)}`;
}
