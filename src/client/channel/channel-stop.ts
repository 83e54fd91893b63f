import { isNotEnabled, RelayError } from '../transport/relay-error.ts';
import { after, inBackground } from '../transport/waits.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { ChannelPast } from './channel-past.ts';
import type { ChannelRuns } from './channel-runs.ts';

/** How long a stop waits for the bot service, in ms. After that, the answer is left. */
const LONGEST_STOP_MS = 2_000;
/** How long the bot service may take to answer a suspend, in ms. */
const LONGEST_SUSPEND_MS = 10_000;

type Stoppable = Pick<BotConversation, 'stop'>;

/** Suspends the runs of a conversation: one suspend at a time. */
export interface Suspension {
  /**
   * Suspends what runs in `talk`, unless a suspend is under way; without `talk`, only waits for that. Resolves when the
   * bot service has answered, after 2 seconds at the latest. It never rejects.
   */
  readonly stop: (talk: Stoppable | undefined) => Promise<void>;
  /** Resolves when the suspend has ended, which would stop a message that is sent now; undefined if none is under way. */
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
      // A suspend that `leave` has aborted is no failure.
      if (current === own && !isNotEnabled(error)) fail(error);
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

/** What a stop of a channel needs. */
interface ChannelStopDependencies {
  readonly talk: () => BotConversation | undefined;
  readonly past: ChannelPast;
  readonly runs: ChannelRuns;
  readonly fail: (thrown: unknown) => void;
}

/** Stops what runs in a channel. */
export interface ChannelStop extends Pick<Suspension, 'ended' | 'leave'> {
  /** Shows all answers as stopped, suspends their runs, and then reads the answers no further. */
  readonly stop: () => Promise<void>;
}

/** Makes the stop of a channel. A stop during a suspend drops the messages that wait for its end. */
export function channelStop({ talk, past, runs, fail }: ChannelStopDependencies): ChannelStop {
  const suspending = suspension(fail);
  return {
    ...suspending,
    async stop() {
      const isBusy = runs.isRunning() || past.isRunning();
      const leave = runs.stop();
      // Before the suspend: a run that it has ended would show its answer as whole.
      past.showStopped();
      await suspending.stop(isBusy ? talk() : undefined);
      leave();
      // A history in which nothing runs is followed further: more of it may come.
      if (past.isRunning()) past.leave();
    },
  };
}
