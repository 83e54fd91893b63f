import { watchTicks } from './awake.ts';

const TICK_MS = 20;
const PAUSE_MS = 200;
const TRIES = 3;

/**
 * A case whose settings are short times says nothing if this process was paused or starved during it. Such a case is
 * void: if it fails, it is run again after `cleanUp`, three times at most. A case that fails without a pause fails at
 * once.
 */
export function whileAwake(
  run: () => Promise<void>,
  cleanUp = async (): Promise<void> => {},
): () => Promise<void> {
  return async () => {
    for (let left = TRIES - 1; ; left -= 1) {
      let hasPaused = false;
      const end = watchTicks(TICK_MS, (ms) => {
        hasPaused ||= ms > PAUSE_MS;
      });
      try {
        return await run();
      } catch (error) {
        // A failure can come before the tick that sees its pause.
        end();
        if (!hasPaused || left === 0) throw error;
        await cleanUp();
      } finally {
        end();
      }
    }
  };
}
