import { isTemporary, type RelayError } from '../transport/relay-error.ts';
import { inBackground } from '../transport/waits.ts';
import type { ShownChannel } from './channel-answer.ts';
import { isOver } from './channel-state.ts';

/** Looks for what other tabs have told of. */
export interface OtherTabs {
  /** Takes the id of a message that another tab has told of. */
  readonly onTold: (messageId: string) => void;
  /** Looks once more after a pause, since a look has failed of which nothing was shown yet. */
  readonly onFailed: (error: RelayError) => void;
  /** Looks no further. */
  readonly leave: () => void;
}

/** The pause after a failed look, in ms, unless the relay names a longer one, and how many there are in a row. */
const PAUSE_MS = 1000;
const MAX_FAILED = 3;

/** Calls `look` for each message that another tab tells of, once the channel is idle and its page is visible. */
export function otherTabs(state: ShownChannel['state'], look: () => void): OtherTabs {
  /** The message that is looked for next, and the one that was looked for last: each is told of twice. */
  let next: string | undefined;
  let last: string | undefined;
  let failed = 0;
  let pause: ReturnType<typeof setTimeout> | undefined;
  function leave(): void {
    clearTimeout(pause);
    if (next === undefined) return;
    next = undefined;
    state.listeners.delete(lookIfIdle);
    globalThis.document?.removeEventListener('visibilitychange', lookIfIdle);
  }
  function lookIfIdle(): void {
    const isIdle = !state.shown().isLoading && state.messages().every((one) => isOver(one.state));
    if (!isIdle || globalThis.document?.hidden) return;
    last = next;
    leave();
    look();
  }
  function lookFor(messageId: string): void {
    next = messageId;
    state.listeners.add(lookIfIdle);
    globalThis.document?.addEventListener('visibilitychange', lookIfIdle);
    lookIfIdle();
  }
  return {
    leave,
    onTold(messageId) {
      if (messageId === last) return;
      failed = 0;
      lookFor(messageId);
    },
    onFailed(error) {
      const messageId = last;
      if (messageId === undefined || !isTemporary(error) || ++failed > MAX_FAILED) return;
      pause = inBackground(() => lookFor(messageId), Math.max(PAUSE_MS, (error.retryAfter ?? 0) * 1000));
    },
  };
}
