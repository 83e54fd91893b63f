import { type Bot, botName } from '../bots/bot.ts';
import { causeOf } from '../errors.ts';
import type { Conversation } from '../guard/conversations.ts';
import type { JoinableRuns, MoveOutcome } from '../join/joinable-runs.ts';
import type { LeftRunOutcome } from '../join/lone-run.ts';
import { conversationKey, type RunName } from '../join/run-name.ts';
import { type UserReaders, userReaders } from '../join/user-readers.ts';
import type { Logger } from '../logger.ts';
import { joinMetrics } from '../watch/join-metrics.ts';
import type { Parts } from './parts.ts';

/** How a request got a run: while it went on, from its beginning after its end, or from after an event. */
export type JoinOutcome = 'live' | 'ended' | 'resumed';

/** The runs that can be joined, and who observes it. */
export interface Joining {
  /** Undefined with `JOIN=off`. */
  readonly runs: JoinableRuns | undefined;
  readonly readers: UserReaders;
  readonly observeJoin: (outcome: JoinOutcome) => void;
}

/** What was said in this conversation is gone: none of its runs can be joined any more, except that of one name. */
export type ForgetRuns = (
  bot: Bot,
  conversation: Conversation | undefined,
  except?: RunName,
) => Promise<void>;

/**
 * Makes the function that forgets the runs of a conversation. Without one, nothing says whose runs are meant. It never
 * rejects: what was asked for is done already.
 */
export function forgetRuns({ runs }: Joining, logger: Logger): ForgetRuns {
  return async (bot, conversation, except) => {
    if (!conversation || !runs) return;
    const key = conversationKey({ bot: botName(bot), channel: conversation.upstream });
    await runs.forget(key, except).catch((error) => {
      logger.warn({ bot: botName(bot), cause: causeOf(error) }, 'runs not forgotten');
    });
  };
}

/** Opens the runs of this instance. */
export function joiningOf({ config, logger, metrics, runBytes: budget, runs }: Parts): Joining {
  const { isOn, maxBytes, ...times } = config.join;
  const observer = metrics && joinMetrics(metrics);
  const onLeft = ({ requestId }: { readonly requestId: string }, outcome: LeftRunOutcome) => {
    observer?.runLeft(outcome);
    logger.info({ requestId, outcome }, 'run without a client');
  };
  const onMoved = ({ requestId }: { readonly requestId: string }, outcome: MoveOutcome) => {
    observer?.runMoved(outcome);
    logger.info({ requestId, outcome }, 'run moved');
  };
  const onFault = ({ requestId }: { readonly requestId: string }, err: unknown) =>
    logger.error({ requestId, err }, 'fault');
  const { maxExecutionMs } = config.upstream;
  const options = { times, maxBytes, budget, onLeft, onMoved, onFault, maxExecutionMs };
  return {
    runs: isOn ? runs.open(options) : undefined,
    readers: userReaders(),
    observeJoin: (outcome) => observer?.runJoined(outcome),
  };
}
