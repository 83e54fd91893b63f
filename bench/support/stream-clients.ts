import { connect, type Socket } from 'node:net';
import { answerReader } from './answer-reader.ts';
import { messageText } from './message.ts';
import { eventReader } from './timed-event.ts';

/** How many streams are opened at once: fewer than a listener queues. */
const MAX_OPENING = 100;
const FIRST_EVENT_TIMEOUT_MS = 30_000;

export interface StreamsWanted {
  readonly port: number;
  /** Whole header lines for each message. */
  readonly headers: readonly string[];
  readonly count: number;
  /** See `../peers/upstream.ts` for the names. */
  readonly bot: string;
  /** How long each of the bot's events is, in bytes. */
  readonly bytes: number;
}

export interface StreamClients {
  /** The delay of each event, in ms. The caller may empty it. */
  readonly delaysMs: number[];
  /** Resolves when all streams have ended. */
  readonly ended: Promise<unknown>;
  /** Why streams broke or differed from what was sent, each reason once. */
  readonly failures: ReadonlySet<string>;
  /** Closes all connections; returns the time, in ns (`process.hrtime.bigint()`). */
  leave(): bigint;
}

/**
 * Opens streams, each over its own TCP connection, some at a time; resolves when each has its first event.
 * @throws Error if a stream gets none
 */
export async function openStreams(wanted: StreamsWanted): Promise<StreamClients> {
  const sockets: Socket[] = [];
  const failures = new Set<string>();
  const delaysMs: number[] = [];
  const ends: Promise<void>[] = [];
  let leaving = false;
  while (sockets.length < wanted.count) {
    const opening: Promise<void>[] = [];
    while (opening.length < MAX_OPENING && sockets.length < wanted.count) {
      const stream = openStream(wanted, delaysMs, (error) => {
        if (!leaving) failures.add(error.message);
      });
      sockets.push(stream.socket);
      opening.push(stream.started);
      ends.push(stream.ended);
    }
    await Promise.all(opening);
  }
  return {
    delaysMs,
    ended: Promise.all(ends),
    failures,
    leave() {
      leaving = true;
      const leftAt = process.hrtime.bigint();
      for (const socket of sockets) socket.destroy();
      return leftAt;
    },
  };
}

function openStream(
  { port, headers, bot, bytes }: StreamsWanted,
  delaysMs: number[],
  onFailure: (error: Error) => void,
) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  const first = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  const fail = (error: Error) => {
    onFailure(error);
    first.reject(error);
    end.resolve();
    socket.destroy();
  };
  const events = eventReader(bytes, (delayMs) => {
    delaysMs.push(delayMs);
    if (socket.timeout === 0) return;
    socket.setTimeout(0);
    first.resolve();
  });
  const read = answerReader({
    onBody: events.push,
    onEnd() {
      events.end();
      end.resolve();
    },
  });
  socket.setTimeout(FIRST_EVENT_TIMEOUT_MS, () => fail(new Error('no event came in time')));
  socket.on('error', fail);
  socket.on('close', () => fail(new Error('the connection was closed')));
  socket.on('data', (data) => {
    try {
      read(data);
    } catch (error) {
      fail(error as Error);
    }
  });
  socket.write(messageText(bot, headers));
  return { socket, started: first.promise, ended: end.promise };
}
