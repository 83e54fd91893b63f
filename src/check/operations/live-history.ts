import type { IncomingMessage } from 'node:http';
import { createParser } from 'eventsource-parser';
import { codeOf } from '../failure-advice.ts';

/** What came of a live stream while it was watched. */
export interface LiveHistory {
  /** The data of its events. */
  readonly events: readonly string[];
  readonly heartbeats: number;
  /** `open`: it was still open when the check left. `broken` is the code of the error. */
  readonly end: 'open' | 'ended' | { readonly broken: string };
  /** How long it was watched, in ms. */
  readonly ms: number;
}

const MAX_BYTES = 16 * 1024 * 1024;

/**
 * Reads a live stream until it ends, or for `watchMs`; then it leaves. It leaves earlier if an event comes whose data is
 * wanted, or, without `isWanted`, if a heartbeat comes.
 */
export async function watchLive(
  response: IncomingMessage,
  watchMs: number,
  isWanted?: (data: string) => boolean,
): Promise<LiveHistory> {
  const from = performance.now();
  const events: string[] = [];
  let heartbeats = 0;
  let isFound = false;
  let end: LiveHistory['end'] = 'ended';
  const parser = createParser({
    onEvent({ data }) {
      events.push(data);
      isFound ||= isWanted?.(data) ?? false;
    },
    onComment: () => void heartbeats++,
  });
  const timer = setTimeout(() => response.destroy(LEFT), watchMs);
  const decoder = new TextDecoder();
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      parser.feed(decoder.decode(chunk, { stream: true }));
      const isEnough = isWanted ? isFound : heartbeats > 0;
      if (!isEnough && bytes <= MAX_BYTES) continue;
      end = 'open';
      break;
    }
  } catch (error) {
    end = error === LEFT ? 'open' : { broken: codeOf(error) };
  } finally {
    clearTimeout(timer);
    response.destroy();
  }
  return { events, heartbeats, end, ms: performance.now() - from };
}

const LEFT = new Error('the check has seen enough');
