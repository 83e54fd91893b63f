import type { Socket } from 'node:net';
import { type RawRequest, STREAM_HEAD, startRawUpstream, wholeStream } from './raw-upstream.ts';

/** What a closing service has seen; `fork` it with one of the names of `CLOSINGS`, and send it any message to get this. */
export interface ClosingReport {
  readonly port: number;
  readonly connections: number;
  /** How often each message was read, by the `n` of its body. */
  readonly read: readonly [number, number][];
}

const STREAM = wholeStream('data: a\n\n');
const ANNOUNCING = Buffer.from(String(STREAM).replace('\r\n\r\n', '\r\nKeep-Alive: timeout=5\r\n\r\n'));
const IDLE_408 = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';

/** Answers a message; returns after how many ms of idleness the connection is closed, if it is still open. */
type Closing = (socket: Socket) => number | undefined;

const CLOSINGS: Record<string, Closing> = {
  'after 5 s': answerThen(STREAM, 5000),
  'after 5 s, announced': answerThen(ANNOUNCING, 5000),
  'after 300 ms': answerThen(STREAM, 300),
  'at random moments': atRandom,
};

function answerThen(answer: Buffer, idleMs: number): Closing {
  return (socket) => {
    socket.write(answer);
    return idleMs;
  };
}

/** Of 100 messages, four are read and not answered, and one is answered with half of a head. */
function atRandom(socket: Socket): number | undefined {
  const dice = Math.random() * 100;
  if (dice < 2) socket.end();
  else if (dice < 4) socket.resetAndDestroy();
  else if (dice < 5) socket.end(STREAM_HEAD.slice(0, 30));
  else {
    socket.write(STREAM);
    return Math.random() * 2000;
  }
  return undefined;
}

/** Closes an idle connection in one of the ways of servers. */
function close(socket: Socket): void {
  const dice = Math.random() * 3;
  if (dice < 1) socket.end();
  else if (dice < 2) socket.end(IDLE_408);
  else socket.resetAndDestroy();
}

const closing = CLOSINGS[process.argv[2] ?? ''];
if (!closing) throw new Error(`no such closing: ${process.argv[2]}`);
const read = new Map<number, number>();
const timers = new WeakMap<Socket, NodeJS.Timeout>();

function onRequest(socket: Socket, { body }: RawRequest): void {
  const { n } = JSON.parse(String(body)) as { n: number };
  read.set(n, (read.get(n) ?? 0) + 1);
  clearTimeout(timers.get(socket));
  const idleMs = closing?.(socket);
  if (idleMs !== undefined) timers.set(socket, setTimeout(close, idleMs, socket));
}

const { port, sockets } = await startRawUpstream(onRequest);
const report = () => process.send?.({ port, connections: sockets.length, read: [...read] });
process.on('message', report);
process.on('disconnect', () => process.exit());
report();
