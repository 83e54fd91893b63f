import type { Socket } from 'node:net';
import { holdTimers } from '../clock/hold-timers.ts';
import { plainAnswer, type RelayAndUpstream, startRelayAndUpstream } from '../relay/relay-and-upstream.ts';
import { chunk, type RawRequest, STREAM_HEAD, wholeStream } from './raw-upstream.ts';

const json = (eventType: string, fields: object = {}) =>
  JSON.stringify({ eventType, requestId: 'run-1', ...fields });
const event = (eventType: string) => `data: ${json(eventType)}\n\n`;
const INIT = event('asgard.run.init');
const KEPT = `retry: 1\nid: 1\ndata: ${json('asgard.message.complete', { n: 1 })}\n\n`;
const DELTA = `data: ${json('asgard.message.delta', { n: 2 })}\n\n`;
const REST = event('asgard.message.delta') + event('asgard.run.done');
/** A whole answer. */
export const WHOLE = INIT + KEPT + DELTA + REST;

const begun = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);

/** One way in which a bot service breaks a message. */
export interface Row {
  readonly what: string;
  readonly breaks: (socket: Socket, letTimePass: () => void) => void;
  /** How long it does not answer, in ms. `letTimePass` moves the clocks of the process so far: it runs alone. */
  readonly silentMs?: number;
  readonly environment?: Record<string, string>;
  /** Whether the client gets the whole answer all the same; if not, it gets an error. */
  readonly isWhole: boolean;
}

const resetAfter = (text: string) => (socket: Socket) => {
  socket.write(begun(text));
  // However busy the process is, it reads the bytes between the timer and this.
  setTimeout(() => setImmediate(() => socket.resetAndDestroy()), 50);
};

/** The ways in which messages of clients in the field became several runs, or broken answers looked complete. */
export const ROWS: readonly Row[] = [
  { what: 'breaks the stream after an id', breaks: resetAfter(INIT + KEPT + DELTA), isWhole: true },
  {
    what: 'breaks the stream in the middle of an event',
    breaks: resetAfter(`${INIT}data: {"ev`),
    isWhole: false,
  },
  {
    what: 'breaks the stream after an id, in the middle of an event with an id',
    breaks: resetAfter(`${INIT}${KEPT}id: 2\ndata: {"ev`),
    isWhole: true,
  },
  {
    what: 'answers 500',
    breaks: (socket) => void socket.write(plainAnswer('500 No', [])),
    isWhole: false,
  },
  {
    what: 'answers 503',
    breaks: (socket) => void socket.write(plainAnswer('503 No', ['Retry-After: 1'])),
    isWhole: false,
  },
  {
    what: 'does not answer in time',
    breaks: (_socket, letTimePass) => letTimePass(),
    silentMs: 54_321,
    environment: { UPSTREAM_RESPONSE_TIMEOUT_MS: '54321' },
    isWhole: false,
  },
  {
    what: 'carries an id and does not end before the deadline',
    breaks: (socket) => void socket.write(begun(INIT + KEPT)),
    environment: { MAX_EXECUTION_MS: '3000' },
    isWhole: false,
  },
  {
    what: 'ends the stream cleanly in mid-run',
    breaks: (socket) => void socket.write(wholeStream(INIT + DELTA)),
    isWhole: false,
  },
  {
    what: 'ends the stream cleanly in mid-run, after an id',
    breaks: (socket) => void socket.write(wholeStream(INIT + KEPT)),
    isWhole: true,
  },
  {
    what: 'reads the message on a kept connection and closes without a byte',
    breaks: (socket) => void socket.destroy(),
    isWhole: false,
  },
];

export interface BreakingService extends RelayAndUpstream {
  /** How many messages have come that are paid: those without `Last-Event-ID`. */
  runs(): number;
}

/**
 * Starts a bot service that answers a first message whole, so that a kept connection is there, and breaks the messages
 * after it. A resumption gets the rest of the answer. `jest.restoreAllMocks()` ends a silence.
 */
export async function startBreakingService({ breaks, silentMs, environment }: Row): Promise<BreakingService> {
  let answered = 0;
  let letTimePass = () => {};
  const answer = (socket: Socket, { all }: RawRequest) => {
    if (answered++ === 0) socket.write(wholeStream(WHOLE));
    else if (all('last-event-id').length > 0) socket.write(wholeStream(DELTA + REST));
    else breaks(socket, letTimePass);
  };
  const pair = await startRelayAndUpstream(answer, environment);
  await (await pair.relay.send(pair.cookie)).text();
  if (silentMs !== undefined) letTimePass = holdTimers(silentMs);
  const runs = () => pair.upstream.requests.filter(({ all }) => all('last-event-id').length === 0).length - 1;
  return { ...pair, runs };
}
