import { setTimeout as sleep } from 'node:timers/promises';
import { botName } from '../bots/bot.ts';
import type { RunEntry } from '../join/joinable-runs.ts';
import { RUN_DROPPED } from '../join/run-follower.ts';
import type { EarlySlot } from '../pace/early-slots.ts';
import type { StreamSink } from '../relay/message/stream-sink.ts';
import { type PendingPlace, pendingPlace } from './admission.ts';
import { type ConductedRun, conductRun } from './conduct-run.ts';
import type { MessageRoute } from './message-parts.ts';
import {
  type Answered,
  type Carried,
  type MessageClient,
  type MessageTask,
  type ReadMessage,
  runTask,
  type Seated,
} from './message-steps.ts';
import { joinRun, sitAt } from './run-seat.ts';

/** How a message is sent, and its stream carried. */
export interface MessageSending {
  readonly sendMessage: (route: MessageRoute, task: MessageTask, message: ReadMessage) => Promise<Answered>;
  readonly carry: (route: MessageRoute, carried: Carried, sink: StreamSink) => Promise<void>;
}

/** A message that is entered, and how it is sent. */
interface Entering {
  readonly message: ReadMessage;
  readonly sending: MessageSending;
}

/** One try to enter a message. */
interface Attempt extends Entering {
  /** Its slot, if that was asked for. */
  early: EarlySlot | undefined;
}

/** A run that was dropped frees its name at once, unless Redis is slow. */
const MAX_TRIES = 100;
const POLL_MS = 50;

/**
 * Joins the run of a message, or begins it and sends the message. Resolves with undefined if nobody can join the
 * message, such as a resumption of which nothing is known here: then its request sends it.
 */
export async function enterRun(
  route: MessageRoute,
  client: MessageClient,
  { message, sending }: Entering,
): Promise<Seated | undefined> {
  const { name } = message;
  const { runs } = route.joining;
  if (!name || !runs) return undefined;
  for (let tries = 1; ; tries++) {
    const attempt: Attempt = { message, sending, early: undefined };
    try {
      // A session may have ended while the body came.
      client.stop.signal.throwIfAborted();
      const seated = await runs.enter<Seated>(name, entryOf(route, client, attempt));
      // Nobody stays at a run of one's own whose session or place was refused.
      await client.place.granted;
      try {
        await seated?.seat.begun;
      } catch (error) {
        // All other failures are those of the message, for `headOf`.
        if (error === RUN_DROPPED) throw error;
      }
      return seated;
    } catch (error) {
      attempt.early?.drop();
      if (error !== RUN_DROPPED || tries === MAX_TRIES) throw error;
      await sleep(POLL_MS);
      await placeAgain(route, client);
    }
  }
}

function entryOf(route: MessageRoute, client: MessageClient, attempt: Attempt): RunEntry<Seated> {
  const { message, sending } = attempt;
  return {
    lastEventId: message.lastEventId,
    requestId: client.res.locals.requestId,
    progress: client.progress,
    signal: client.stop.signal,
    granted: client.place.granted,
    // A message that may have no place for its stream asks for its slot later.
    onAsked() {
      if (client.place.isKept()) attempt.early = earlyFor(route, client);
    },
    join(found) {
      attempt.early?.drop();
      client.place.release();
      client.progress = found.run.progress;
      return { run: found.run, at: found.at, seat: joinRun(found, route, client) };
    },
    begin(run) {
      const seat = sitAt(run, route, client);
      client.run = run;
      const task = runTask(client, run, attempt.early);
      // It may have another place after the first try.
      const own = message.place === client.place ? message : { ...message, place: client.place };
      const sent = sending.sendMessage(route, task, own);
      conduct(route, { run, task, sent, place: client.place, carry: sending.carry });
      return { run, at: 0, seat };
    },
  };
}

/** Asks for the slot of a message that nobody can join in the flight of its place, if that is not there yet. */
export function askEarly(route: MessageRoute, client: MessageClient): EarlySlot | undefined {
  return client.place.isPending() ? earlyFor(route, client) : undefined;
}

function earlyFor(route: MessageRoute, { bot, holders }: MessageClient): EarlySlot | undefined {
  return route.askEarly?.({ endpoint: botName(bot), holders });
}

/**
 * If the session or the place of its message was refused, the run is dropped as if its client had left: who has joined it
 * meanwhile may send the message.
 */
function failureOf({ granted }: PendingPlace, error: unknown): Promise<unknown> {
  return granted.then(
    () => error,
    () => RUN_DROPPED,
  );
}

/** Another has dropped the message, which this client may send now: as at first, it needs a place for that. */
async function placeAgain(route: MessageRoute, client: MessageClient): Promise<void> {
  client.place.release();
  const place = pendingPlace(Promise.resolve(), route.takePlace(client.holders));
  client.releases.push(() => client.run || place.release());
  client.place = place;
  await place.granted;
  client.progress = { hasLeft: false, mayHaveStarted: false };
}

/** A function of its own, so that the body is freed while the stream goes on. */
function conduct(
  route: MessageRoute,
  {
    run,
    task,
    sent,
    place,
    carry,
  }: Pick<MessageSending, 'carry'> & Pick<ConductedRun, 'run' | 'task' | 'sent'> & { place: PendingPlace },
): void {
  conductRun({
    run,
    hasBegun: false,
    sent,
    failureOf: (error) => failureOf(place, error),
    carry: (answered) => carry(route, { task, answered }, run.stream.outlet),
    task,
    logger: route.logger,
  });
}
