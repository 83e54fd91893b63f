import { type BigIntStats, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import type { User } from '../sessions/session.ts';
import { hashPassword, isPasswordHash, verifyPassword } from './password-hash.ts';

/** What a user can be called. */
const USER_NAME = /^[A-Za-z0-9._@+-]{1,64}$/;

const usersFile = z.strictObject({
  users: z.array(
    z.strictObject({
      name: z.string().regex(USER_NAME, 'a name has 1 to 64 letters, digits or . _ @ + -'),
      hash: z.string().refine(isPasswordHash, 'not a hash made by bot-relay user'),
    }),
  ),
});

/** The users who may sign in with a password. */
export interface Users {
  /** The user with this name and password, or `undefined`. Takes as long for an unknown name as for a wrong password. */
  verify(name: string, password: string): Promise<User | undefined>;
  /** Whether there is a user with this name. */
  has(name: string): boolean;
}

/**
 * Users by their password hashes; `hashes` is called for each sign-in. An unknown name is checked against `decoyHash`, so
 * that the time does not tell whether a name is known.
 */
export function usersOf(hashes: () => ReadonlyMap<string, string>, decoyHash: string): Users {
  return {
    async verify(name, password) {
      const hash = hashes().get(name);
      const correct = await verifyPassword(password, hash ?? decoyHash);
      return hash !== undefined && correct ? { id: name, name } : undefined;
    },
    has: (name) => hashes().has(name),
  };
}

/**
 * The users of the file at `path`, which is read again when it has changed. If the changed file cannot be used, the
 * users stay as they were, and `report` is called once for this change.
 * @throws Error that names the file and its fault, if it cannot be used at the start
 */
export async function usersFromFile(path: string, report: (error: Error) => void): Promise<Users> {
  let stamp = fileStamp(path);
  let hashes = readUsers(path);
  const current = () => {
    const newStamp = fileStamp(path);
    if (newStamp === stamp) return hashes;
    stamp = newStamp;
    try {
      hashes = readUsers(path);
    } catch (error) {
      report(error as Error);
    }
    return hashes;
  };
  return usersOf(current, await hashPassword('decoy'));
}

/**
 * Adds a user to the file at `path`, or changes the password of a user. Creates the file if there is none, readable by
 * its owner only.
 * @throws Error if the name is not allowed, or the file is not a users file
 */
export async function saveUser(path: string, name: string, password: string): Promise<void> {
  if (!USER_NAME.test(name)) throw new Error('A user name has 1 to 64 letters, digits or . _ @ + -');
  const hashes = new Map(fileStamp(path) === undefined ? [] : readUsers(path));
  hashes.set(name, await hashPassword(password));
  writeUsers(path, hashes);
}

/** Removes a user from the file at `path`; returns false if there is no such user. */
export function removeUser(path: string, name: string): boolean {
  const hashes = new Map(readUsers(path));
  const removed = hashes.delete(name);
  if (removed) writeUsers(path, hashes);
  return removed;
}

/** The names in the file at `path`, in the order in which they were added. */
export function listUsers(path: string): string[] {
  return [...readUsers(path).keys()];
}

function readUsers(path: string): ReadonlyMap<string, string> {
  try {
    const { users } = usersFile.parse(JSON.parse(readFileSync(path, 'utf8')));
    return new Map(users.map(({ name, hash }) => [name, hash]));
  } catch (error) {
    throw new Error(`${path} cannot be used: ${reason(error)}`);
  }
}

function writeUsers(path: string, hashes: ReadonlyMap<string, string>): void {
  const users = Array.from(hashes, ([name, hash]) => ({ name, hash }));
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, `${JSON.stringify({ users }, null, 2)}\n`, { mode: 0o600 });
  renameSync(temporary, path);
}

function fileStamp(path: string): string | undefined {
  const stats: BigIntStats | undefined = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats && `${stats.ino} ${stats.mtimeNs} ${stats.size}`;
}

function reason(error: unknown): string {
  if (error instanceof z.ZodError) return error.issues.map(({ message }) => message).join('; ');
  if (error instanceof SyntaxError) return 'it is not JSON';
  return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'it does not exist' : String(error);
}

const credentials = z.object({ username: z.string().max(256), password: z.string().max(1024) });

/** The user name and password in the body of a login request; undefined if it has none. */
export function readCredentials(body: unknown): z.infer<typeof credentials> | undefined {
  return credentials.safeParse(body).data;
}
