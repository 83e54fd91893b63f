import { RelayError } from '../transport/relay-error.ts';
import { after, inBackground } from '../transport/waits.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { ChannelPast } from './channel-past.ts';
import type { ChannelRuns } from './channel-runs.ts';
import { isNothingThere } from './follow-history.ts';

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
  readonly ended: () => Promise<unknown> | undefined;
  /** Ends a suspend that is under way. */
  readonly leave: () => void;
}

/** `fail` is called with the error of a suspend, unless nothing ran, or the relay cannot stop runs. */
export function suspension(fail: (thrown: unknown) => void): Suspension {
  let current: { readonly controller: AbortController; readonly ended: Promise<unknown> } | undefined;
  function begin(talk: Stoppable): NonNullable<typeof current> {
    const controller = new AbortController();
    const unanswered = new RelayError('The stop was not answered.', { code: 'unreachable', status: 0 });
    const timer = inBackground(() => controller.abort(unanswered), LONGEST_SUSPEND_MS);
    const ended = talk.stop(controller).catch((error) => {
      // What `leave` has ended is no failure.
      if (current === own && !isNothingThere(error)) fail(error);
    });
    const own = {
      controller,
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
      current?.controller.abort();
      current = undefined;
    },
    async stop(talk) {
      if (talk) current ??= begin(talk);
      if (current) await Promise.race([current.ended, after(LONGEST_STOP_MS)]);
    },
  };
}

interface Stopped {
  readonly talk: () => BotConversation | undefined;
  readonly past: ChannelPast;
  readonly runs: ChannelRuns;
  readonly fail: (thrown: unknown) => void;
}

/** Stops what runs in a channel. */
export interface ChannelStop extends Pick<Suspension, 'ended' | 'leave'> {
  /** Shows all answers as stopped, suspends their runs, and leaves. */
  readonly stop: () => Promise<void>;
}

/** One suspend at a time: a stop during it stops what this page has begun meanwhile, which has not left yet. */
export function channelStop({ talk, past, runs, fail }: Stopped): ChannelStop {
  const suspending = suspension(fail);
  return {
    ...suspending,
    async stop() {
      const isBusy = runs.isRunning() || past.isRunning();
      const leave = runs.stop();
      // Now: a run that has ended by the suspend would show its answer as whole.
      past.showStopped();
      await suspending.stop(isBusy ? talk() : undefined);
      leave();
      // What was said is still shown if it comes later.
      if (past.isRunning()) past.leave();
    },
  };
}
