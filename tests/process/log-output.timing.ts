import { afterAll, expect, test } from '@jest/globals';
import { removeOutputs } from '../harness/relay/readable-output.ts';
import { runUnread } from '../harness/relay/unread-process.ts';

afterAll(removeOutputs);

// An exit waits for its reader, this process, only for 0.4 s.
test.each(['pipe', 'socket'] as const)(
  'a reader at a %s that reads again before an exit loses nothing',
  async (kind) => {
    const { child, output, told, exited } = runUnread(
      kind,
      `
    const pad = 'x'.repeat(1000);
    for (let n = 0; n < 5000; n++) logger.info({ n, pad });
    process.send('logged');
    process.once('message', () => process.exit(3));`,
    );
    await told;
    output.read();
    child.send('exit');
    expect(await exited).toBe(3);
    await output.ended;
    const lines = output.text().trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).n)).toEqual(Array.from({ length: 5000 }, (_, n) => n));
  },
);
