import { setTimeout as sleep } from 'node:timers/promises';
import { botName } from '../bots/bot.ts';
import type { Run } from '../join/run.ts';
import { RUN_DROPPED } from '../join/run-follower.ts';
import type { RunName } from '../join/run-name.ts';
import type { EarlySlot } from '../pace/early-slots.ts';
import type { StreamSink } from '../relay/message/stream-sink.ts';
import { pendingPlace } from './admission.ts';
import { conductRun } from './conduct-run.ts';
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

/** Such a message that can be joined. */
interface Named extends Entering {
  readonly name: RunName;
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
  if (!name || !route.joining.runs) return undefined;
  const named = { message, sending, name };
  for (let tries = 1; ; tries++) {
    try {
      return await tryToEnter(route, client, named);
    } catch (error) {
      if (error !== RUN_DROPPED || tries === MAX_TRIES) throw error;
      await sleep(POLL_MS);
      await placeAgain(route, client);
    }
  }
}

/** As `enterRun`. @throws `RUN_DROPPED` if the message of the run that it has joined was not sent */
async function tryToEnter(
  route: MessageRoute,
  client: MessageClient,
  { message, sending, name }: Named,
): Promise<Seated | undefined> {
  const { lastEventId } = message;
  // A session may have ended while the body came.
  client.stop.signal.throwIfAborted();
  const { requestId } = client.res.locals;
  let early: EarlySlot | undefined;
  // A message that may have no place for its stream asks for its slot later.
  const onAsked = () => {
    if (client.place.isKept()) early = earlyFor(route, client);
  };
  const entered = route.joining.runs?.enter<Seated>(name, {
    ...{ lastEventId, requestId, progress: client.progress, signal: client.stop.signal, onAsked },
    granted: client.place.granted,
    join(found) {
      early?.drop();
      client.place.release();
      client.progress = found.run.progress;
      return { run: found.run, at: found.at, seat: joinRun(found, route, client) };
    },
    begin(run) {
      const seat = sitAt(run, route, client);
      client.run = run;
      const task = runTask(client, run, early);
      // It may have another place after the first try.
      const own = message.place === client.place ? message : { ...message, place: client.place };
      const sent = sending.sendMessage(route, task, own).catch((error) => dropRefused(client, error));
      conduct(route, { run, task, sent, carry: sending.carry });
      return { run, at: 0, seat };
    },
  });
  const seated = await entered?.catch((error) => {
    early?.drop();
    throw error;
  });
  // Nobody stays at a run of one's own whose session or place was refused.
  await client.place.granted;
  // All other failures are those of the message, for `headOf`.
  await seated?.seat.begun.catch((error) => {
    if (error === RUN_DROPPED) throw error;
  });
  return seated;
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
async function dropRefused({ place }: MessageClient, error: unknown): Promise<never> {
  await place.granted.catch(() => {
    throw RUN_DROPPED;
  });
  throw error;
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
    carry,
  }: Pick<MessageSending, 'carry'> & { run: Run; task: MessageTask; sent: Promise<Answered> },
): void {
  const carryRun = (answered: Answered) => carry(route, { task, answered }, run.stream.outlet);
  conductRun({ run, sent, carry: carryRun, task, logger: route.logger });
}
