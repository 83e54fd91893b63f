import { botName } from '../bots/bot.ts';
import { asProblem, isFault } from '../errors.ts';
import { levelOf } from '../http/ending.ts';
import type { Run } from '../join/run.ts';
import type { Logger } from '../logger.ts';
import type { Answered, MessageTask } from './message-steps.ts';

/** The work of a run. */
export interface ConductedRun {
  readonly run: Run;
  /** Whether its stream has begun, at another instance. */
  readonly hasBegun: boolean;
  /** The message is on its way. */
  readonly sent: Promise<Answered>;
  /** What the run has failed with if `sent` rejects with `error`. */
  readonly failureOf: (error: unknown) => Promise<unknown>;
  /** Carries the stream. Resolves when it has ended. */
  readonly carry: (answered: Answered) => Promise<void>;
  readonly task: MessageTask;
  readonly logger: Logger;
}

/** Sees a run to its end, whoever waits for it. An async function would keep more in memory while the stream goes on. */
export function conductRun(conducted: ConductedRun): void {
  const { run, hasBegun, sent, failureOf, carry } = conducted;
  const over = (failure?: unknown) => end(conducted, failure);
  const begin = (answered: Answered) => {
    try {
      if (!hasBegun) run.begin(answered.head);
      carry(answered).then(over, over);
    } catch (error) {
      over(error);
    }
  };
  sent.then(begin, (error) => void failureOf(error).then(over, over));
}

function end(conducted: ConductedRun, failure: unknown): void {
  const { run, task } = conducted;
  for (const release of task.releases.reverse()) release();
  if (run.isAlone()) logFailure(conducted, failure);
  run.over(failure);
}

/** Tells the log what a run without a client has failed with: no request is there whose line could say it. */
function logFailure({ run, task, logger }: ConductedRun, failure: unknown): void {
  const ended = run.stream.ended();
  if (failure === undefined && !ended?.problem) return;
  const problem = ended?.problem ?? asProblem(failure);
  const { requestId, upstreamStatus, resumptions } = task.locals;
  if (failure !== undefined && isFault(problem)) logger.error({ requestId, err: problem.cause }, 'fault');
  const { notResumed } = problem.options;
  const outcome = problem.code;
  const cause = typeof problem.cause === 'string' ? problem.cause : undefined;
  const level = problem.options.level ?? levelOf({ status: problem.status, outcome });
  const { userId } = task;
  const bot = botName(task.bot);
  logger[level](
    { requestId, outcome, cause, upstreamStatus, resumptions, notResumed, userId, bot },
    'run ended without a client',
  );
}
