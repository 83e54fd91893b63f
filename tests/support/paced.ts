import type { Socket } from 'node:net';
import { type Pair, startPair } from './pair.ts';
import { type RawRequest, wholeStream } from './raw-upstream.ts';
import { MESSAGE } from './relay.ts';

/** A stream that is over at once. */
export const DONE = wholeStream('data: done\n\n');

/** A pair whose messages are numbered, so that a test can tell when which of them reached the bot service. */
export interface PacedPair extends Pair {
  /** The number in each message that arrived, and when, in ms. */
  readonly arrivals: { readonly n: number; readonly at: number }[];
  /** The numbers of those that arrived, in order. */
  started(): number[];
  /** Sends the message with the number `n`. */
  send(n: number, options?: { cookie?: string; signal?: AbortSignal }): Promise<Response>;
}

export async function startPaced(
  environment: Record<string, string>,
  answer: (socket: Socket, request: RawRequest) => void = (socket) => void socket.write(DONE),
): Promise<PacedPair> {
  const arrivals: { n: number; at: number }[] = [];
  const pair = await startPair((socket, request) => {
    const { n } = JSON.parse(request.body.toString()) as { n: number };
    arrivals.push({ n, at: performance.now() });
    answer(socket, request);
  }, environment);
  return {
    ...pair,
    arrivals,
    started: () => arrivals.map(({ n }) => n),
    send: (n, { cookie = pair.cookie, signal } = {}) =>
      pair.relay.send(cookie, {
        body: JSON.stringify({ ...JSON.parse(MESSAGE), n }),
        ...(signal && { signal }),
      }),
  };
}

/**
 * The most of `times` that lie in any stretch of `windowMs`, less a quarter: bot service, relays and clients of
 * a test share one event loop, which reads the clock late when it is busy.
 */
export function mostInWindow(times: readonly number[], windowMs: number): number {
  const end = (from: number) => from + windowMs * 0.75;
  return Math.max(...times.map((from) => times.filter((at) => at >= from && at < end(from)).length));
}

/**
 * Those that came before one with a lower number, and not just in the same moment: messages whose slots come
 * together race on the wire.
 */
export function overtaking(arrivals: readonly { n: number; at: number }[], windowMs: number): number[] {
  const overtook = ({ n, at }: { n: number; at: number }) =>
    arrivals.some((other) => other.n < n && other.at - at > windowMs / 4);
  return arrivals.filter(overtook).map(({ n }) => n);
}

/** The code of a problem. */
export async function codeOf(answer: Response): Promise<string> {
  return ((await answer.json()) as { code: string }).code;
}

/** The numbers from 0 to `count - 1`. */
export const range = (count: number) => Array.from({ length: count }, (_, n) => n);
