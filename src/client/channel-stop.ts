import { asRelayError } from './as-relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { ChannelPast } from './channel-past.ts';
import type { ChannelRuns } from './channel-runs.ts';
import { NOTHING_THERE } from './follow-history.ts';
import { inBackground } from './in-background.ts';

/** How long a stop waits for the bot service before it leaves, in ms. */
const LONGEST_STOP_MS = 2_000;
/** After which time a suspend without an answer is aborted, in ms. */
const LONGEST_SUSPEND_MS = 10_000;

interface Stopped {
  readonly talk: () => BotConversation | undefined;
  readonly past: ChannelPast;
  readonly runs: ChannelRuns;
  readonly fail: (thrown: unknown) => void;
}

/** Stops what runs in a channel. */
export interface ChannelStop {
  /** Shows all answers as stopped, suspends their runs, and leaves. */
  readonly stop: () => Promise<void>;
  /** Resolves when no suspend is under way, which would stop a message that is sent now; undefined if none is. */
  readonly ended: () => Promise<void> | undefined;
  /** Ends a suspend that is under way. */
  readonly leave: () => void;
}

/** One suspend at a time: a stop during it stops what this page has begun meanwhile, which has not left yet. */
export function channelStop({ talk, past, runs, fail }: Stopped): ChannelStop {
  let suspend: { readonly abort: () => void; readonly ended: Promise<void> } | undefined;
  function begin(its: BotConversation): NonNullable<typeof suspend> {
    const controller = new AbortController();
    const { signal } = controller;
    const abort = () => controller.abort();
    const timer = inBackground(abort, LONGEST_SUSPEND_MS);
    const ended = its.stop({ signal }).then(
      () => {},
      (error) => {
        // Nothing ran, or the relay cannot stop runs.
        if (!signal.aborted && !NOTHING_THERE.includes(asRelayError(error).code)) fail(error);
      },
    );
    const own = {
      abort,
      ended: ended.finally(() => {
        clearTimeout(timer);
        if (suspend === own) suspend = undefined;
      }),
    };
    return own;
  }
  return {
    ended: () => suspend?.ended,
    leave() {
      suspend?.abort();
      suspend = undefined;
    },
    async stop() {
      const isBusy = runs.isRunning() || past.isRunning();
      const leave = runs.stop();
      // Now: a run that has ended by the suspend would show its answer as whole.
      past.showStopped();
      const its = talk();
      if (isBusy && its) suspend ??= begin(its);
      const longest = new Promise<void>((resolve) => inBackground(resolve, LONGEST_STOP_MS));
      if (suspend) await Promise.race([suspend.ended, longest]);
      leave();
      // What was said is still shown if it comes later.
      if (past.isRunning()) past.leave();
    },
  };
}
