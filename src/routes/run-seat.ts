import type { Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import type { SessionWatch } from '../authenticate/sessions/session-watch.ts';
import { type Bot, botName } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import type { CarriedStream } from '../http/locals.ts';
import type { Run } from '../join/run.ts';
import type { Seat } from '../join/run-seats.ts';
import type { FoundRun } from '../join/runs.ts';
import type { Logger } from '../logger.ts';
import { beginStream } from '../relay/message/begin-stream.ts';
import type { Heartbeats } from '../relay/message/heartbeats.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import { responseSink } from '../relay/message/response-sink.ts';
import { asAnswerLost } from '../relay/upstream/answer-lost.ts';
import type { RelayObserver } from '../relay/upstream/relay-observer.ts';
import type { Joining } from './joining.ts';

/** What the routes share that answer with the stream of a run. */
export interface SeatParts {
  readonly open: OpenMessages;
  readonly watch: SessionWatch;
  readonly heartbeats: Heartbeats;
  readonly observer: RelayObserver;
  readonly joining: Joining;
  readonly logger: Logger;
}

/** A request that gets the stream of a run. */
export interface SeatClient {
  readonly res: Response;
  readonly bot: Bot;
  readonly session: LiveSession;
  readonly stop: AbortController;
  readonly stream: CarriedStream;
  readonly releases: (() => void)[];
}

/** Takes a seat at a run; the client leaves it when its request is over. */
export function sitAt(run: Run, { open, watch }: SeatParts, client: SeatClient): Seat {
  const { stop, session, releases } = client;
  const seat = run.sit({
    stop,
    holdRun(runStop) {
      // A run without a client is bound to its last session, and is no use of it.
      const close = open.add(runStop, session.key, 'left');
      const unwatch = watch.follow({ session, bytes: () => 0 });
      return () => {
        unwatch();
        close();
      };
    },
  });
  releases.push(seat.leave);
  return seat;
}

/** Takes a seat at a run that another request has begun, and tells the log. */
export function joinRun({ run, state, at }: FoundRun, parts: SeatParts, client: SeatClient): Seat {
  const seat = sitAt(run, parts, client);
  client.releases.push(parts.joining.readers.add(client.session.user.id, client.stop));
  const { requestId } = client.res.locals;
  const outcome = at > 0 ? 'resumed' : state;
  parts.joining.observeJoin(outcome);
  const fields = { requestId, bot: botName(client.bot), outcome, runRequestId: run.requestId };
  parts.logger.info(fields, 'run joined');
  return seat;
}

/**
 * Waits until the stream of the run begins. Sets the headers of the answer, be it a stream or not.
 * @throws what the message of the run has failed with, or what has ended this request
 */
export async function headOf(
  run: Run,
  seat: Seat,
  { res, stop }: SeatClient,
): Promise<ReadonlyMap<string, string>> {
  try {
    return await seat.begun;
  } catch (error) {
    const isOwn = error === stop.signal.reason && error instanceof Problem;
    throw isOwn && run.progress.mayHaveStarted ? asAnswerLost(error) : error;
  } finally {
    res.locals.upstreamStatus = run.progress.upstreamStatus;
    if (!res.destroyed && run.headers.size > 0) res.setHeaders(run.headers);
  }
}

/** Answers with the stream of the run, from the offset `at` on. */
export function readRun(
  {
    seat,
    at,
    head,
  }: { readonly seat: Seat; readonly at: number; readonly head: ReadonlyMap<string, string> },
  { heartbeats, observer }: SeatParts,
  { res, bot, stream }: SeatClient,
): Promise<void> {
  res.locals.stream = stream;
  beginStream(res, head);
  const identity = { requestId: res.locals.requestId, bot };
  const onHeartbeat = observer.heartbeatSent;
  return seat.read(responseSink({ res, identity, stream, log: res.locals, heartbeats, onHeartbeat }), at);
}
