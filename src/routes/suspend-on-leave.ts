import { type Bot, botName, type PathShape } from '../bots/bot.ts';
import { causeOf, Problem, type ProblemCode } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { Holders } from '../pace/holders.ts';
import { SUSPEND } from '../relay/operations/operation-table.ts';
import type { RelayObserver, SuspendOutcome } from '../relay/upstream/relay-observer.ts';
import type { AskService } from './own-request.ts';

/** A run that the relay has given up after its clients have left, and that goes on at the bot service. */
export interface LeftRun {
  readonly shape: PathShape;
  readonly bot: Bot;
  /** The id of its conversation that the service knows. */
  readonly channel: string;
  /** The `requestId` of its events, as the bot service has written it. */
  readonly runId: string;
  readonly userId: string;
  readonly holders: Holders;
  /** The id of the request that has begun it. */
  readonly requestId: string;
}

/** Asks the service to suspend a run, in the background. Never fails. */
export type SuspendLeftRun = (run: LeftRun) => void;

export interface SuspendOnLeaveOptions {
  readonly isOn: boolean;
  readonly askService: AskService;
  /** How long the request may take with its wait for a slot, in ms. */
  readonly timeoutMs: number;
  readonly observer: Pick<RelayObserver, 'suspendOnLeave'>;
  readonly logger: Logger;
}

/** Makes the function that suspends a run whose client has left; with `isOn` false it does nothing. */
export function suspendOnLeave(options: SuspendOnLeaveOptions): SuspendLeftRun {
  const { isOn, askService, timeoutMs, observer, logger } = options;

  async function suspend({ channel, runId, ...run }: LeftRun): Promise<void> {
    const query = new URLSearchParams({ custom_channel_id: channel, request_id: runId });
    let outcome: SuspendOutcome = 'failed';
    let cause: string | undefined;
    try {
      const signal = AbortSignal.timeout(timeoutMs);
      const { status } = await askService({ ...run, operation: SUSPEND, query, signal });
      outcome = outcomeOf(status);
      if (outcome === 'failed') cause = `status ${status}`;
    } catch (error) {
      if (error instanceof Problem && error.code === RATE_LIMITED) outcome = RATE_LIMITED;
      else cause = causeOf(error);
    }
    observer.suspendOnLeave(outcome);
    const level = outcome === 'suspended' || outcome === 'over' ? 'info' : 'warn';
    logger[level](
      { requestId: run.requestId, bot: botName(run.bot), outcome, cause },
      'suspend of a run that its client has left',
    );
  }

  return function suspendLeftRun(run) {
    // The id must be one that a client could send.
    if (isOn && SUSPEND.query?.request_id?.pattern.test(run.runId)) void suspend(run);
  };
}

const RATE_LIMITED = 'rate_limited' satisfies ProblemCode & SuspendOutcome;

function outcomeOf(status: number): SuspendOutcome {
  if (status === 404) return 'over';
  if (status === 429) return RATE_LIMITED;
  return status >= 200 && status < 300 ? 'suspended' : 'failed';
}
