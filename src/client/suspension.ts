import { asRelayError } from './as-relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import { NOTHING_THERE } from './follow-history.ts';
import { inBackground } from './in-background.ts';
import { RelayError } from './relay-error.ts';

/** How long a stop waits for the bot service before it leaves, in ms. */
const LONGEST_STOP_MS = 2_000;
/** After which time a suspend without an answer is aborted, in ms. */
const LONGEST_SUSPEND_MS = 10_000;

type Stoppable = Pick<BotConversation, 'stop'>;

/** One suspend of a conversation at a time. */
export interface Suspension {
  /**
   * Suspends what runs in `talk`, unless a suspend is under way; without `talk`, only waits for that one. Resolves when
   * the bot service has answered, after 2 seconds at the latest. It never rejects.
   */
  readonly stop: (talk: Stoppable | undefined) => Promise<void>;
  /** Resolves when no suspend is under way, which would stop a message that is sent now; undefined if none is. */
  readonly ended: () => Promise<void> | undefined;
  /** Ends a suspend that is under way. */
  readonly leave: () => void;
}

/** `fail` is called with the error of a suspend, unless nothing ran, or the relay cannot stop runs. */
export function suspension(fail: (thrown: unknown) => void): Suspension {
  let current: { readonly abort: () => void; readonly ended: Promise<void> } | undefined;
  function begin(talk: Stoppable): NonNullable<typeof current> {
    const controller = new AbortController();
    const { signal } = controller;
    let isLeft = false;
    const abort = () => {
      isLeft = true;
      controller.abort();
    };
    const unanswered = new RelayError('The stop was not answered.', { code: 'unreachable', status: 0 });
    const timer = inBackground(() => controller.abort(unanswered), LONGEST_SUSPEND_MS);
    const ended = talk.stop({ signal }).then(
      () => {},
      (error) => {
        if (!isLeft && !NOTHING_THERE.includes(asRelayError(error).code)) fail(error);
      },
    );
    const own = {
      abort,
      ended: ended.finally(() => {
        clearTimeout(timer);
        if (current === own) current = undefined;
      }),
    };
    return own;
  }
  return {
    ended: () => current?.ended,
    leave() {
      current?.abort();
      current = undefined;
    },
    async stop(talk) {
      if (talk) current ??= begin(talk);
      const longest = new Promise<void>((resolve) => inBackground(resolve, LONGEST_STOP_MS));
      if (current) await Promise.race([current.ended, longest]);
    },
  };
}
