import { asRelayError } from './as-relay-error.ts';
import type { ShownConversation } from './message-actions.ts';

/** The action of a conversation that uploads files. */
export function uploadActions({ current, state }: Pick<ShownConversation, 'current' | 'state'>) {
  const running = new Set<AbortController>();
  return {
    async upload(file: File): Promise<string | undefined> {
      const controller = new AbortController();
      const { signal } = controller;
      running.add(controller);
      state.change({ error: undefined });
      try {
        return await current().upload(file, { signal });
      } catch (thrown) {
        if (!signal.aborted) state.change({ error: asRelayError(thrown) });
        return undefined;
      } finally {
        running.delete(controller);
      }
    },
    /** Ends all uploads. */
    abort() {
      for (const controller of running) controller.abort();
    },
  };
}
