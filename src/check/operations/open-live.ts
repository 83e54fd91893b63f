import type { IncomingMessage } from 'node:http';
import { headerFaults } from '../judge-answer.ts';
import { type Answer, headOf, textOf } from '../through-client.ts';
import type { OperationCall, OperationSession } from './operation-session.ts';

/** How long a live stream may take to begin, in ms, even if the relay itself waits for longer. */
const MAX_BEGIN_MS = 20_000;
/** The check does not wait for a heartbeat that comes later, in ms. */
const MAX_WATCH_MS = 30_000;
/** Heartbeats can be late by an eighth, and the network delays them further. */
const LATE = 1.5;

/** A live stream that has begun; who gets it reads or closes it. */
export interface OpenedLive {
  readonly response: IncomingMessage;
  /** What is wrong with its headers, in plain words. */
  readonly faults: readonly string[];
}

/** Opens a live stream. Returns the answer if it is no stream, or the code of the error. */
export async function openLive(
  { open, config }: Pick<OperationSession, 'open' | 'config'>,
  line: string,
  request: OperationCall,
): Promise<OpenedLive | Answer | string> {
  const timeoutMs = Math.min(config.upstream.responseTimeoutMs, MAX_BEGIN_MS);
  try {
    const { response } = await open(line, { ...request, timeoutMs });
    const head = headOf(response);
    const isStream = head.status === 200 && /^text\/event-stream\b/i.test(head.headers['content-type'] ?? '');
    if (!isStream) return { ...head, text: await textOf(response) };
    return { response, faults: headerFaults(head, 'stream') };
  } catch (error) {
    return (error as Error).message;
  }
}

/** How long a stream may be silent before its heartbeat is missing, in ms; `undefined` if that is not waited for. */
export function heartbeatWaitMs(heartbeatMs: number): number | undefined {
  const waitMs = heartbeatMs * LATE;
  return waitMs > 0 && waitMs <= MAX_WATCH_MS ? waitMs : undefined;
}

/** What to do if the live stream at `path` is held back. */
export function bufferedAdvice(path: string): string {
  return `At the load balancer, turn off buffering of responses also for GET …/${path} (nginx: proxy_buffering off).`;
}

/** What to do about the headers of a live stream. */
export const HEADERS_ADVICE = 'Let the load balancer pass the headers of the relay on, and compress nothing.';
