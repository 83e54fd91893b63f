import type { RunningPeer } from '../support/peers.ts';
import { cpuUs } from '../support/process-usage.ts';
import { quantile } from '../support/statistics.ts';
import { openStreams } from '../support/stream-clients.ts';
import { sleep } from '../support/wait.ts';

/** Streams like those of an LLM, with events so far apart that they do not merge on their way. */
const STREAMS = 50;
const BYTES = 100;
const EVERY_MS = 20;
const SETTLE_MS = 1_000;

export interface EventFigures {
  /** CPU of the peer per event, in µs. */
  readonly cpu: number;
  /** From the upstream's write to the client's read, in ms. */
  readonly delayP50: number;
  readonly delayP99: number;
}

/**
 * Measures 50 streams for `watchMs` after all of them have begun. Each has an event of 100 bytes every 20 ms.
 * @throws Error if an event is missing, changed or out of order
 */
export async function eventFigures(
  { port, pid, headers }: RunningPeer,
  watchMs: number,
): Promise<EventFigures> {
  // Longer than the measurement, but not endless, since not every peer aborts when its clients leave.
  const bot = `drip-${Math.ceil((2 * (SETTLE_MS + watchMs)) / EVERY_MS)}-${BYTES}-${EVERY_MS}`;
  const clients = await openStreams({ port, headers, count: STREAMS, bot, bytes: BYTES });
  await sleep(SETTLE_MS);
  clients.delaysMs.length = 0;
  const before = cpuUs(pid);
  await sleep(watchMs);
  const used = cpuUs(pid) - before;
  const delays = [...clients.delaysMs];
  clients.leave();
  const [failure] = clients.failures;
  if (failure !== undefined) throw new Error(failure);
  return { cpu: used / delays.length, delayP50: quantile(delays, 0.5), delayP99: quantile(delays, 0.99) };
}
