import type { BotConversation } from './bot-conversation.ts';
import type { ChannelPast } from './channel-past.ts';
import type { ChannelRuns } from './channel-runs.ts';
import { type Suspension, suspension } from './suspension.ts';

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
