import type { RunningPeer } from '../support/peers.ts';
import { openStreams } from '../support/stream-clients.ts';
import type { UpstreamProcess } from '../support/upstream-process.ts';
import { waitUntil } from '../support/wait.ts';

const CLIENTS = 100;
const TIMEOUT_MS = 5_000;

/**
 * 100 clients of silent streams leave at the same time. Returns how long it takes until the last stream at the upstream
 * is closed, in ms. @throws Error if it takes more than 5 s
 */
export async function aborts({ port, headers }: RunningPeer, { open }: UpstreamProcess): Promise<number> {
  // A new name each time, since a peer that never aborts leaves its streams open.
  const bot = `silent-${process.hrtime.bigint()}`;
  const clients = await openStreams({ port, headers, count: CLIENTS, bot, bytes: 100 });
  const leftAt = clients.leave();
  let last = await open(bot);
  const allAreGone = async () => {
    last = await open(bot);
    return last.count === 0;
  };
  await waitUntil(allAreGone, TIMEOUT_MS).catch(() => {
    throw new Error(
      `the upstream still holds ${last.count} of ${CLIENTS} streams after ${TIMEOUT_MS / 1000} s`,
    );
  });
  return Number(last.lastClosedAt - leftAt) / 1e6;
}
