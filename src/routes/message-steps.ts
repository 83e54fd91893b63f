import type { IncomingHttpHeaders } from 'node:http';
import type { Request, Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import type { Bot } from '../bots/bot.ts';
import type { PathShape } from '../bots/bot-path.ts';
import type { Conversation } from '../guard/conversations.ts';
import type { CarriedStream, RequestLocals } from '../http/locals.ts';
import { setHeaders } from '../http/set-headers.ts';
import type { Progress, Run } from '../join/run.ts';
import type { RunName } from '../join/run-name.ts';
import type { Seat } from '../join/run-seats.ts';
import type { EarlySlot } from '../pace/early-slots.ts';
import type { Holders } from '../pace/holders.ts';
import type { MessagePlace } from '../pace/message-places.ts';
import type { Pacing } from '../pace/pacing.ts';
import type { UnsentMessage } from '../pace/unsent-messages.ts';
import type { Deadlines } from '../relay/message/deadlines.ts';
import type { MessageDeadline } from '../relay/message/message-deadline.ts';
import type { StreamCursor } from '../relay/message/stream-cursor.ts';
import type { UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import type { MessageKeys } from '../relay/upstream/message-keys.ts';
import type { UpstreamRequest } from '../relay/upstream/send.ts';
import type { PendingPlace } from './admission.ts';
import type { KeptMessage } from './message-healing.ts';

/** Whose message it is, and to which bot: what its request and its run have in common. */
export interface MessageOwner {
  readonly userId: string;
  readonly bot: Bot;
  readonly shape: PathShape;
  readonly holders: Holders;
}

/** A request with a message that has passed all checks before its body. */
export interface MessageClient extends MessageOwner {
  readonly req: Request;
  readonly res: Response;
  place: PendingPlace;
  readonly session: LiveSession;
  /** Aborted when the client leaves, or with what ends its request. */
  readonly stop: AbortController;
  /** What was carried to this client. */
  readonly stream: CarriedStream;
  /** Called when the request is over. */
  readonly releases: (() => void)[];
  /** How far the message has come that this request has sent, or joined. */
  progress: Progress;
  /** Set if the message can be joined: then its run has its place. */
  run: Run | undefined;
}

/** A message that was read. */
export interface ReadMessage {
  /** With the upstream id of the conversation. */
  readonly body: Buffer;
  readonly conversation: Conversation | undefined;
  /** The hash of its bytes as they came; undefined if it has more than 64 KiB. */
  readonly hash: string | undefined;
  /** Undefined if it can't be joined. */
  readonly name: RunName | undefined;
  /** Whether it begins its conversation anew. */
  readonly resets: boolean;
  readonly lastEventId: string | undefined;
  readonly place: MessagePlace;
}

/** What another instance needs to go on with the stream of a message: a JSON value, without a key. */
export interface RunHold extends MessageOwner {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** In base64. */
  readonly body: string;
  readonly conversation: Conversation | undefined;
  /** What is left of its deadline, in ms; undefined if it has none. */
  readonly leftMs: number | undefined;
}

/** A message on its way: that of one request, or that of a run, which outlives its request. */
export interface MessageTask extends MessageOwner {
  /** The target and the headers of the request. */
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly locals: RequestLocals;
  readonly stop: AbortController;
  /** Called when the message is over. */
  readonly releases: (() => void)[];
  readonly progress: Progress;
  /** Its first slot, if that was asked for before. */
  readonly early?: EarlySlot | undefined;
  /** Sets headers of the answer. */
  readonly setHeaders: (headers: Readonly<Record<string, string>>) => void;
  /** Asked before each sending, and told of each refusal. Undefined if the message has none, or has left before. */
  readonly run: Pick<Run, 'mayLeave' | 'isSure' | 'refused' | 'keep'> | undefined;
}

/** An answer that is a stream. */
export interface Answered {
  /** Or how far the stream had come that another instance has carried. */
  readonly answer: UpstreamAnswer | StreamCursor;
  readonly head: ReadonlyMap<string, string>;
  readonly deadline: MessageDeadline;
  readonly conversation: Conversation | undefined;
  /** What is kept to resume the stream if it breaks. */
  readonly kept: KeptMessage | undefined;
}

/** A message whose answer is a stream. */
export interface Carried {
  readonly task: MessageTask;
  readonly answered: Answered;
}

/** A seat at the run of a message, whose stream is read from an offset on. */
export interface Seated {
  readonly run: Run;
  readonly seat: Seat;
  readonly at: number;
}

/** How a request gets its stream: it carries that of its own message, or reads that of a run. */
export type Way = Carried | (Seated & { readonly head: ReadonlyMap<string, string> });

/** A message that is being sent. */
export interface Sending {
  readonly request: UpstreamRequest;
  readonly keys: MessageKeys;
  readonly pacing: Pacing;
  readonly unsent: UnsentMessage;
  readonly mask: (text: string) => string;
  readonly limits: Deadlines;
  readonly deadline: MessageDeadline;
  readonly task: MessageTask;
}

/** The task of a message that nobody can join. */
export function ownTask(client: MessageClient, early: EarlySlot | undefined): MessageTask {
  const { req, res, stop, releases, progress } = client;
  if (early) releases.push(early.drop);
  const { userId, bot, shape, holders } = client;
  return {
    userId,
    bot,
    shape,
    holders,
    url: req.url,
    headers: req.headers,
    locals: res.locals,
    stop,
    releases,
    progress,
    early,
    setHeaders: (headers) => setHeaders(res, headers),
    run: undefined,
  };
}

/** The task of a message whose run outlives its request: it has the place of that, and aborts by itself. */
export function runTask(client: MessageClient, run: Run, early: EarlySlot | undefined): MessageTask {
  const { req, res, place, progress } = client;
  const { userId, bot, shape, holders } = client;
  return {
    userId,
    bot,
    shape,
    holders,
    url: req.url,
    headers: req.headers,
    locals: res.locals,
    stop: run.stop,
    releases: early ? [place.release, early.drop] : [place.release],
    progress,
    early,
    setHeaders(headers) {
      for (const name in headers) run.headers.set(name, headers[name] as string);
    },
    run,
  };
}

/** What is kept of a message whose stream another instance may go on with. */
export function runHold(
  task: MessageTask,
  { request, conversation, limits }: Pick<Sending, 'request' | 'limits'> & Pick<Answered, 'conversation'>,
): RunHold {
  const leftMs = limits.leftMs();
  const { path, headers, body } = request;
  return {
    ...ownerOf(task),
    ...{ path, headers, body: body.toString('base64'), conversation },
    leftMs: leftMs < Number.POSITIVE_INFINITY ? leftMs : undefined,
  };
}

function ownerOf({ userId, bot, shape, holders }: MessageOwner): MessageOwner {
  return { userId, bot, shape, holders };
}
