import { once } from 'node:events';
import type { Brain } from '../../../src/service/brains/steps.ts';

/** An answer to it waits in its middle until the test lets it go on. */
export const HELD = 'Wait in the middle';

/** A bot that repeats what it is told. `goOn` has all its answers to `HELD` go on. */
export function heldEcho(): { readonly brain: Brain; readonly goOn: () => void } {
  let held = Promise.withResolvers<void>();
  return {
    brain: {
      ...{ isResumable: false, hasSandbox: true, metadata: {} },
      async *answer({ text, files }, signal) {
        const until = held.promise;
        yield { startMessage: true };
        yield { say: 'You said:' };
        if (text === HELD) await Promise.race([until, once(signal, 'abort')]);
        signal.throwIfAborted();
        yield { say: ` ${text}${files.map(({ name }) => ` You sent: ${name}`).join('')}` };
      },
    },
    goOn() {
      held.resolve();
      held = Promise.withResolvers();
    },
  };
}
