import type { ServerResponse } from 'node:http';
import type { Bot } from '../../bots/bot.ts';
import { type FailureNotes, type Problem, problemDocument, recordOutcome } from '../../errors.ts';
import type { StreamPosition } from './stream-position.ts';

/** How long the last bytes may wait for room on the way to the client, in ms. */
const LAST_BYTES_MS = 5_000;

/**
 * Cuts the connection of a client for which data waits when nothing of it has gone out for `ms`, or up to twice
 * that; noted in `log` as `client_stalled`. The socket's timeout starts anew whenever the system has taken some of what
 * waits, which for a very slow client is in large steps. `res.setTimeout(0)` calls it off.
 */
export function cutWhenStalled(res: ServerResponse, ms: number, log: FailureNotes): void {
  // The listener of an earlier call is still there.
  const isWatched = res.listenerCount('timeout') > 0;
  res.setTimeout(ms);
  if (isWatched) return;
  res.on('timeout', () => {
    log.outcome ??= 'client_stalled';
    res.destroy();
  });
}

/** Whose stream it is. */
export interface StreamOf {
  readonly requestId: string;
  readonly bot: Bot;
}

export interface StreamEnd {
  readonly problem: Problem;
  readonly position: StreamPosition;
  readonly of: StreamOf;
  /** Told what ended the stream. */
  readonly log: FailureNotes;
}

/**
 * Ends a stream that cannot go on, so that it does not look complete: with one error event and a clean end
 * where the client can take one; by cutting the connection where it stands inside an event, or where the
 * stream carried an `id` and the client can resume.
 */
export function endTruthfully(res: ServerResponse, { problem, position, of, log }: StreamEnd): void {
  recordOutcome(log, problem);
  const timer = setTimeout(() => res.socket?.resetAndDestroy(), LAST_BYTES_MS);
  res.once('close', () => clearTimeout(timer));
  if (position.atEventBoundary() && !position.sawId()) {
    res.end(errorEvent(problem, of));
  } else {
    cut(res);
  }
}

/** Closes the connection without the end of the body, once what was written before is on its way. */
function cut(res: ServerResponse): void {
  const { socket } = res;
  if (res.req.httpVersion === '1.0') {
    // There the end of the connection is the end of the body: only a reset tells that it broke.
    socket?.write('', () => socket.resetAndDestroy());
  } else {
    socket?.destroySoon();
  }
}

/**
 * An event that a careful reader takes by its name `error` and its `code`, and the clients in the field by
 * the `asgard.run.error` in its data.
 */
function errorEvent(problem: Problem, { requestId, bot }: StreamOf): string {
  const { namespace, botProviderName } = bot;
  const data = {
    ...problemDocument(problem, requestId),
    eventType: 'asgard.run.error',
    namespace,
    botProviderName,
    customChannelId: null,
    fact: {
      runError: {
        error: {
          message: problem.message,
          code: problem.code,
          inner: '',
          location: { namespace, workflowName: '', processorName: '', processorType: '' },
        },
      },
    },
  };
  return `event: error\ndata: ${JSON.stringify(data)}\n\n`;
}
