import type { FigureName, PeerResults, Results } from '../../bench/report/results.ts';
import { figureOf } from '../../bench/support/statistics.ts';

type Medians = Partial<Record<FigureName, number>>;

/** A figure of three rounds around `median`: 5 % below, 10 % above. */
export const around = (median: number) => figureOf([median, median * 0.95, median * 1.1]);

/** A peer with invented figures. */
export function samplePeer(name: string, medians: Medians, more: Partial<PeerResults> = {}): PeerResults {
  const figures = Object.entries(medians).map(([figure, median]) => [figure, around(median)]);
  return { name, version: '', notes: [], figures: Object.fromEntries(figures), ...more };
}

/** Invented figures of realistic sizes. */
export function sampleResults(peers: readonly PeerResults[] = samplePeers()): Results {
  return {
    takenAt: '2026-03-04T05:06:07.000Z',
    machine: 'a virtual machine with 2 cores and 23 GiB of memory, Linux 6.1',
    node: 'v24.21.0',
    rounds: 3,
    direct: {
      delayP50: around(0.11),
      delayP99: around(0.44),
      firstEventP50: around(0.062),
      firstEventP99: around(0.22),
    },
    peers,
  };
}

function samplePeers(): PeerResults[] {
  const all = (event: number, message: number, kib: number, ms: number): Medians => ({
    cpuPerEvent: event,
    cpuPerMessage: message,
    throughput: 36_000 / event,
    addedDelayP50: ms,
    addedDelayP99: ms * 12,
    addedFirstEventP50: ms * 3,
    addedFirstEventP99: ms * 25,
    memory1000: kib * 1.2,
    memory5000: kib,
    memory9000: kib * 0.98,
    stalledPeak: kib / 3,
    aborts: ms * 900,
  });
  const { memory1000, memory5000, memory9000, ...withoutMemory } = all(59, 369, 40, 0.11);
  const note = 'does not close what its clients leave, so that 1,000 | 5,000 <open> streams never end';
  return [
    samplePeer('nginx', all(40, 85, 18, 0.045), { version: '1.26.3' }),
    samplePeer('HAProxy', all(31, 87, 5, 0.036), { version: '3.0.11' }),
    samplePeer('node:http pipe', all(70, 410, 40, 0.12)),
    samplePeer('http-proxy-middleware 4', all(62, 516, 48, 0.125), { version: '4.2.1' }),
    samplePeer('@fastify/http-proxy', withoutMemory, { version: '11.6.3', notes: [note] }),
    samplePeer('undici', all(57, 379, 39, 0.1), { version: '8.12.4' }),
    samplePeer('hono', all(77, 871, 67, 0.16), { version: '4.13.19' }),
    samplePeer('bot-relay', all(62, 600, 55, 0.13), { version: '0.1.0' }),
    samplePeer('bot-relay with Redis', all(62, 1_204, 56, 0.13), { version: '0.1.0' }),
  ];
}
