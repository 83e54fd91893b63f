import type { IncomingHttpHeaders } from 'node:http';
import type { Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import { type Bot, botName } from '../bots/bot.ts';
import { asProblem, isFault, Problem } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-connection.ts';
import type { CarriedStream } from '../http/locals.ts';
import { beginStream } from '../relay/message/begin-stream.ts';
import { responseSink } from '../relay/message/response-sink.ts';
import { failInStream } from '../relay/message/stream-ending.ts';
import type { JoinedRun } from '../runs/join-run.ts';
import { NOT_KEPT, RUN_OVER } from '../runs/run-problems.ts';
import type { ReaderClient, RunHead } from '../runs/run-reader.ts';
import type { BotServices } from './bot-services.ts';
import type { Releases } from './route.ts';

/** A request that gets the stream of a run. */
export interface RunClient {
  readonly res: Response;
  readonly bot: Bot;
  readonly session: LiveSession;
  /** Aborted when the client leaves, or with what ends its request. */
  readonly stop: AbortController;
  /** What was carried to this client. */
  readonly stream: CarriedStream;
  /** Called when the request is over. */
  readonly releases: Releases;
}

/** The client's `Last-Event-ID`; undefined if it is empty, which means the same (WHATWG HTML §9.2.3). */
export function lastEventIdOf(headers: IncomingHttpHeaders): string | undefined {
  const id = headers['last-event-id'];
  return typeof id === 'string' && id !== '' ? id : undefined;
}

/** What a run needs to know of a client. */
export function readerClient({ open, watch }: BotServices, { stop, session }: RunClient): ReaderClient {
  return {
    stop,
    bindToSession(runStop) {
      // A run without a client ends with its last session, and does not extend it.
      const close = open.add(runStop, session.key, 'left');
      const unwatch = watch.add({ session, bytes: () => 0 });
      return () => {
        unwatch();
        close();
      };
    },
  };
}

/**
 * Lets the client leave the run when its request is over. A reader of another request's run is bounded for its user,
 * counted and logged.
 */
export function registerReader(services: BotServices, joined: JoinedRun, client: RunClient): void {
  const { run, reader, how } = joined;
  const { releases, session, stop, res, bot } = client;
  releases.push(() => reader.leave());
  if (how === 'begun') return;
  releases.push(services.userReaders.add(session.user.id, stop));
  services.observeJoin(how);
  const { requestId } = res.locals;
  const fields = { requestId, bot: botName(bot), outcome: how, runRequestId: run.requestId };
  services.logger.info(fields, 'run joined');
}

/**
 * Answers with the stream of the run, from the client's place on. Resolves when the answer has ended.
 * @throws what the message has failed with before it left for the bot service
 */
export async function readRun(services: BotServices, joined: JoinedRun, client: RunClient): Promise<void> {
  const head = await waitForHead(joined, client).catch((error) =>
    answerFailure(services, { ...joined, ...client, error }),
  );
  if (!head) return;
  const { heartbeats, observer } = services;
  const { res, bot, stream } = client;
  res.locals.stream = stream;
  beginStream(res, head);
  const identity = { requestId: res.locals.requestId, bot };
  const onHeartbeat = observer.heartbeatSent;
  const sink = responseSink({ res, identity, stream, log: res.locals, heartbeats, onHeartbeat });
  await joined.reader.read(sink, joined.at);
}

/** Waits until the stream begins. Sets the headers of the answer, be it a stream or not. */
async function waitForHead({ run, reader }: JoinedRun, { res }: RunClient): Promise<RunHead> {
  try {
    return await reader.head();
  } finally {
    res.locals.upstreamStatus = run.upstreamStatus;
    if (!res.destroyed && run.headers.size > 0) res.setHeaders(run.headers);
  }
}

/** Problems that say that this client cannot join the run; the run itself has not failed. */
const NOT_JOINED: readonly unknown[] = [RUN_OVER, NOT_KEPT];

/**
 * Answers a message that failed after it had left, or was stopped, as a stream with one error event: clients in the
 * field send it again after any status but 200. A resumption keeps its status, which is final for them.
 * @throws the failure itself if it keeps its status
 */
function answerFailure(
  { logger }: BotServices,
  { error, run, res, bot }: JoinedRun & RunClient & { readonly error: unknown },
): void {
  const isResumption = lastEventIdOf(res.req.headers) !== undefined;
  const isStopped = error instanceof Problem && error.code === 'stopped';
  if (isResumption || NOT_JOINED.includes(error) || !(isStopped || run.hasLeft)) throw error;
  if (error === CLIENT_LEFT || res.destroyed) return;
  const { requestId } = res.locals;
  const problem = asProblem(error, { maybeStarted: true });
  if (isFault(problem)) logger.error({ requestId, err: problem.cause }, 'fault');
  failInStream(res, { problem, identity: { requestId, bot }, log: res.locals });
}
