import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';

const MIN_LENGTH = 8;

/** A terminal, or streams in its place. */
export interface Terminal {
  readonly input: Readable & { isTTY?: boolean; setRawMode?(raw: boolean): void };
  readonly output: Writable;
}

/** Reads one line key by key without showing it. Rejects on Ctrl-C and Ctrl-D. */
export function askPassword(prompt: string, { input, output }: Terminal): Promise<string> {
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
        if (key === '\u0003' || key === '\u0004') return finish(() => reject(new Error('Cancelled.')));
        typed = key === '\u007f' || key === '\b' ? [...typed].slice(0, -1).join('') : typed + key;
      }
    };
    output.write(prompt);
    input.setRawMode?.(true);
    input.on('data', onData);
    input.resume();
  });
}

/**
 * A new password: asked for twice at a terminal; if the input is none, all of it (without one line end at its end).
 * @throws Error in plain words, if it is too short, is not repeated, or was cancelled
 */
export async function newPassword(terminal: Terminal): Promise<string> {
  const password = terminal.input.isTTY
    ? await askTwice(terminal)
    : (await text(terminal.input)).replace(/\r?\n$/, '');
  if (password.length < MIN_LENGTH) throw new Error(`A password has at least ${MIN_LENGTH} characters.`);
  return password;
}

async function askTwice(terminal: Terminal): Promise<string> {
  const first = await askPassword('Password: ', terminal);
  if (first !== (await askPassword('Once more: ', terminal))) throw new Error('The two passwords differ.');
  return first;
}
