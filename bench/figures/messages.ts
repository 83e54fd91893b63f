import { type MessageConnection, messageConnection, sendMessages } from '../support/message-connection.ts';
import type { RunningPeer } from '../support/peers.ts';
import { cpuUs } from '../support/process-usage.ts';
import { quantile } from '../support/statistics.ts';

const CONNECTIONS = 4;

/** Sends `count` messages over four connections: also as a warm-up, so that code is compiled. */
export async function sendMany({ port, headers }: RunningPeer, count: number): Promise<void> {
  await withConnections(port, headers, (connections) => sendMessages(connections, count));
}

/** CPU of a message of three events, in µs, measured over `count` messages on four kept connections without pauses. */
export async function cpuPerMessage({ port, pid, headers }: RunningPeer, count: number): Promise<number> {
  return withConnections(port, headers, async (connections) => {
    // Connections are opened before the measurement.
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
 * Sends one message at a time over kept connections: one through the peer and one directly to the upstream, in
 * alternating order, so that other load of the machine affects both.
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
