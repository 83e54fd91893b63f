import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { listUsers, removeUser, saveUser } from '../authenticate/password/users.ts';

export const USER_USAGE = `Usage: npm run user -- add NAME      add a user, or set a new password
       npm run user -- remove NAME   remove a user
       npm run user -- list          print the names
`;
const MIN_PASSWORD_LENGTH = 8;

export interface Terminal {
  readonly input: Readable & { isTTY?: boolean; setRawMode?(raw: boolean): void };
  readonly output: Writable;
}

/**
 * The command that maintains the users file at `path`. A new password is asked for on the terminal without
 * showing it, or read from the input when that is no terminal (one line end at its end is dropped).
 * Returns the exit code: 0 done, 1 could not be done, 64 wrong arguments.
 */
export async function userCommand(
  args: readonly string[],
  path: string,
  terminal: Terminal,
): Promise<number> {
  const [action, name, ...rest] = args;
  const say = (line: string) => terminal.output.write(`${line}\n`);
  const wellFormed = rest.length === 0 && (action === 'list' ? name === undefined : name !== undefined);
  try {
    if (wellFormed && action === 'add') {
      await saveUser(path, name as string, await newPassword(terminal));
      say(`${name} can sign in now (${path}).`);
      return 0;
    }
    if (wellFormed && action === 'remove') {
      const removed = removeUser(path, name as string);
      say(
        removed ? `${name} can no longer sign in; open sessions last until they expire.` : `No user ${name}.`,
      );
      return removed ? 0 : 1;
    }
    if (wellFormed && action === 'list') {
      for (const user of listUsers(path)) say(user);
      return 0;
    }
  } catch (error) {
    say((error as Error).message);
    return 1;
  }
  terminal.output.write(USER_USAGE);
  return 64;
}

async function newPassword(terminal: Terminal): Promise<string> {
  const password = terminal.input.isTTY
    ? await askTwice(terminal)
    : (await text(terminal.input)).replace(/\r?\n$/, '');
  if (password.length < MIN_PASSWORD_LENGTH) {
    throw new Error(`A password has at least ${MIN_PASSWORD_LENGTH} characters.`);
  }
  return password;
}

async function askTwice(terminal: Terminal): Promise<string> {
  const first = await askHidden('Password: ', terminal);
  if (first !== (await askHidden('Once more: ', terminal))) throw new Error('The two passwords differ.');
  return first;
}

/** Reads one line key by key, showing nothing of it. Rejects when it is given up with Ctrl-C or Ctrl-D. */
export function askHidden(prompt: string, { input, output }: Terminal): Promise<string> {
  return new Promise((resolve, reject) => {
    let typed = '';
    const finish = (settle: () => void) => {
      input.off('data', onData);
      input.setRawMode?.(false);
      input.pause();
      output.write('\n');
      settle();
    };
    const onData = (data: Buffer | string) => {
      for (const key of data.toString('utf8')) {
        if (key === '\r' || key === '\n') return finish(() => resolve(typed));
        if (key === '\u0003' || key === '\u0004') return finish(() => reject(new Error('Given up.')));
        typed = key === '\u007f' || key === '\b' ? [...typed].slice(0, -1).join('') : typed + key;
      }
    };
    output.write(prompt);
    input.setRawMode?.(true);
    input.on('data', onData);
    input.resume();
  });
}
