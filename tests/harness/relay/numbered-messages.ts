import type { Socket } from 'node:net';
import { type RawRequest, wholeStream } from '../service/raw-upstream.ts';
import { MESSAGE, type TestLimits } from './relay.ts';
import { startRelayAndUpstream } from './relay-and-upstream.ts';

/** A stream that ends at once. */
export const DONE = wholeStream('data: done\n\n');

export type WithNumberedMessages = Awaited<ReturnType<typeof startWithNumberedMessages>>;

/** A relay and an upstream whose messages are numbered, so that a test sees which message arrived when. */
export async function startWithNumberedMessages(
  environment: Record<string, string>,
  answer: (socket: Socket, request: RawRequest) => void = (socket) => void socket.write(DONE),
  limits: TestLimits = {},
) {
  /** The number of each message that arrived, and the time, in ms. */
  const arrivals: { n: number; at: number }[] = [];
  const pair = await startRelayAndUpstream(
    (socket, request) => {
      const { n } = JSON.parse(request.body.toString()) as { n: number };
      arrivals.push({ n, at: performance.now() });
      answer(socket, request);
    },
    environment,
    limits,
  );
  return {
    ...pair,
    arrivals,
    /** The numbers of the messages that arrived, in order. */
    started: () => arrivals.map(({ n }) => n),
    /** Sends the message with the number `n`. */
    send: (n: number, { cookie = pair.cookie, signal }: { cookie?: string; signal?: AbortSignal } = {}) =>
      pair.relay.send(cookie, {
        body: JSON.stringify({ ...JSON.parse(MESSAGE), n }),
        ...(signal && { signal }),
      }),
  };
}

/**
 * How many of `times` lie in one window at most. The window is three quarters of `windowMs`: all parts of a test share
 * one event loop, which reads the clock late when it is busy.
 */
export function mostInWindow(times: readonly number[], windowMs: number): number {
  const end = (from: number) => from + windowMs * 0.75;
  return Math.max(...times.map((from) => times.filter((at) => at >= from && at < end(from)).length));
}

/**
 * The numbers of messages that arrived clearly before one with a lower number. Messages that get their slots at the same
 * time may arrive in any order.
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
