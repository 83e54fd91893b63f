import { connect } from 'node:net';
import { messageText } from '../support/message.ts';
import type { RunningPeer } from '../support/peers.ts';
import { peakRssBytes, resetPeak, rssBytes, settledRssBytes } from '../support/process-usage.ts';
import { openStreams, type StreamClients } from '../support/stream-clients.ts';
import { sleep } from '../support/wait.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const STALLED_EVENT_BYTES = 65_536;
const STALLED_EVENTS = 3_200;

/**
 * Memory per open silent stream in KiB, at each of `sizes` (ascending), from the resident set when it no longer changes,
 * measured every `measureEveryMs`. The peer is not asked to collect garbage. @throws Error if a stream does not start
 */
export async function memoryPerStream(
  { port, pid, headers }: RunningPeer,
  { sizes, measureEveryMs }: { readonly sizes: readonly number[]; readonly measureEveryMs: number },
): Promise<number[]> {
  const before = await settledRssBytes(pid, measureEveryMs);
  const opened: StreamClients[] = [];
  const figures: number[] = [];
  let open = 0;
  try {
    for (const size of sizes) {
      opened.push(await openStreams({ port, headers, count: size - open, bot: 'silent-memory', bytes: 100 }));
      open = size;
      figures.push(((await settledRssBytes(pid, measureEveryMs)) - before) / size / KIB);
    }
    const [failure] = opened.flatMap(({ failures }) => [...failures]);
    if (failure !== undefined) throw new Error(failure);
    return figures;
  } finally {
    for (const { leave } of opened) leave();
  }
}

/** How much the memory of the peer grows at most, in MiB, while one client reads nothing of a stream of 200 MB for `stalledMs`. */
export async function stalledPeak({ port, pid, headers }: RunningPeer, stalledMs: number): Promise<number> {
  const before = rssBytes(pid);
  resetPeak(pid);
  // A socket without a listener for data reads nothing.
  const socket = connect({ port, host: '127.0.0.1' }).on('error', () => {});
  socket.write(messageText(`flood-${STALLED_EVENTS}-${STALLED_EVENT_BYTES}`, headers));
  await sleep(stalledMs);
  const peak = peakRssBytes(pid);
  socket.destroy();
  return (peak - before) / MIB;
}
