import { connect, type Socket } from 'node:net';
import { messageText } from './message.ts';

const OK = 'HTTP/1.1 200 ';
const FIRST_EVENT = '\r\ndata: ';
const SENT_AT = /data: \{"at":(\d+)/g;
/** Below the length of the queue of connections that are not accepted yet. */
const AT_A_TIME = 100;
const FIRST_EVENT_TIMEOUT_MS = 30_000;

export interface StreamClients {
  /** How many got their first event. */
  readonly started: number;
  /** Why others did not, each reason once. */
  readonly failures: ReadonlySet<string>;
  /** How long each timed event took to arrive, in ms; whoever reads it may empty it. */
  readonly delaysMs: number[];
  /** How many streams were closed by the other side. */
  lost(): number;
  /** Drops all connections; returns when, in ns (`process.hrtime.bigint()`). */
  leave(): bigint;
}

/**
 * Opens `count` streams of `bot` at `port`, each over a bare connection of its own, some at a time; resolves
 * when each has its first event or has failed.
 */
export async function openStreams(
  port: number,
  count: number,
  { bot, cookie = '' }: { bot: string; cookie?: string },
): Promise<StreamClients> {
  const message = messageText(bot, cookie);
  const sockets: Socket[] = [];
  const failures = new Set<string>();
  const delaysMs: number[] = [];
  let started = 0;
  let closed = 0;
  while (sockets.length < count) {
    const opening: Promise<void>[] = [];
    while (opening.length < AT_A_TIME && sockets.length < count) {
      const socket = connect({ port, host: '127.0.0.1', noDelay: true });
      sockets.push(socket);
      socket.on('close', () => closed++);
      opening.push(firstEvent(socket, message, delaysMs));
    }
    for (const result of await Promise.allSettled(opening)) {
      if (result.status === 'fulfilled') started++;
      else failures.add(String(result.reason.message));
    }
  }
  return {
    started,
    failures,
    delaysMs,
    lost: () => closed,
    leave() {
      const leftAt = process.hrtime.bigint();
      for (const socket of sockets) socket.destroy();
      return leftAt;
    },
  };
}

/** Sends `message`; resolves with the first event of its answer. What comes goes into `delaysMs`. */
function firstEvent(socket: Socket, message: string, delaysMs: number[]): Promise<void> {
  return new Promise((resolve, reject) => {
    let head = '';
    socket.setTimeout(FIRST_EVENT_TIMEOUT_MS, () => reject(new Error('no event came in time')));
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`closed after: ${head.split('\r\n', 1)[0]}`)));
    socket.on('data', (data: Buffer) => {
      const text = data.toString('latin1');
      noteDelays(text, delaysMs);
      if (socket.timeout === 0) return;
      head += text;
      if (!head.startsWith(OK)) return reject(new Error(`answered: ${head.split('\r\n', 1)[0]}`));
      if (!head.includes(FIRST_EVENT)) return;
      socket.setTimeout(0);
      resolve();
    });
    socket.write(message);
  });
}

function noteDelays(text: string, delaysMs: number[]): void {
  const now = process.hrtime.bigint();
  for (const [, sentAt] of text.matchAll(SENT_AT))
    delaysMs.push(Number(now - BigInt(sentAt as string)) / 1e6);
}
