import type { Readable, Writable } from 'node:stream';

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
