import type { RunningPeer } from '../support/peers.ts';
import { cpuUs } from '../support/process-usage.ts';
import { openStreams } from '../support/stream-clients.ts';

const STREAMS = 2;
const EVENT_BYTES = 65_536;

/** How many MB the peer carries per CPU second: two streams of 64 KiB events at full speed, `bytes` in all. */
export async function throughput({ port, pid, headers }: RunningPeer, bytes: number): Promise<number> {
  const count = Math.ceil(bytes / STREAMS / EVENT_BYTES);
  const bot = `flood-${count}-${EVENT_BYTES}`;
  const before = cpuUs(pid);
  const clients = await openStreams({ port, headers, count: STREAMS, bot, bytes: EVENT_BYTES });
  await clients.ended;
  const used = cpuUs(pid) - before;
  clients.leave();
  const [failure] = clients.failures;
  if (failure !== undefined) throw new Error(failure);
  // Bytes per µs are MB per second.
  return (STREAMS * count * EVENT_BYTES) / used;
}
