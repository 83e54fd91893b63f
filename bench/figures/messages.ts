import { type MessageConnection, messageConnection, sendMessages } from '../support/message-connection.ts';
import type { RunningPeer } from '../support/peers.ts';
import { cpuUs } from '../support/process-usage.ts';
import { quantile } from '../support/statistics.ts';

const CONNECTIONS = 4;

/** Has the runtime compile what messages need, and connections be there. */
export async function warmUp({ port, headers }: RunningPeer, count: number): Promise<void> {
  await withConnections(port, headers, (connections) => sendMessages(connections, count));
}

/** CPU of a message of three events in µs: `count` of them over four kept connections, each of which is never idle. */
export async function cpuPerMessage({ port, pid, headers }: RunningPeer, count: number): Promise<number> {
  return withConnections(port, headers, async (connections) => {
    // Connecting is no part of a message.
    await sendMessages(connections, CONNECTIONS * 5);
    const before = cpuUs(pid);
    await sendMessages(connections, count);
    return (cpuUs(pid) - before) / count;
  });
}

async function withConnections<T>(
  port: number,
  headers: readonly string[],
  use: (connections: MessageConnection[]) => Promise<T>,
): Promise<T> {
  const connections = Array.from({ length: CONNECTIONS }, () => messageConnection(port, headers));
  try {
    return await use(connections);
  } finally {
    for (const { close } of connections) close();
  }
}

/** The times to the first event of messages, in ms. */
export interface FirstEvents {
  readonly p50: number;
  readonly p99: number;
}

/**
 * One message at a time, over kept connections. Every message through the peer has a twin that goes straight to
 * the upstream, in alternating order, so that what else the machine does hits both.
 */
export async function firstEvents(
  peer: RunningPeer,
  direct: RunningPeer,
  pairs: number,
): Promise<{ through: FirstEvents; direct: FirstEvents }> {
  const [through, straight] = [peer, direct].map(({ port, headers }) => messageConnection(port, headers)) as [
    MessageConnection,
    MessageConnection,
  ];
  const times: { through: number[]; direct: number[] } = { through: [], direct: [] };
  try {
    await Promise.all([through.send(), straight.send()]);
    for (let pair = 0; pair < pairs; pair++) {
      if (pair % 2 === 0) times.direct.push(await straight.send());
      times.through.push(await through.send());
      if (pair % 2 === 1) times.direct.push(await straight.send());
    }
  } finally {
    through.close();
    straight.close();
  }
  const of = (ms: number[]) => ({ p50: quantile(ms, 0.5), p99: quantile(ms, 0.99) });
  return { through: of(times.through), direct: of(times.direct) };
}
