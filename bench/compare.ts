/**
 * Compares the cost of a message through the relay with that of other proxies, in one run on one machine. All peers
 * carry the same messages to the same upstream, in turns, so that other load of the machine affects all of them.
 * README.md says how each figure is measured.
 */
import { openFilesLimit } from '../src/config/config.ts';
import { aborts } from './figures/aborts.ts';
import { type EventFigures, eventFigures } from './figures/events.ts';
import { memoryPerStream, stalledPeak } from './figures/memory.ts';
import { cpuPerMessage, firstEvents, sendMany } from './figures/messages.ts';
import { profile } from './figures/profile.ts';
import { throughput } from './figures/throughput.ts';
import type { Results } from './report/results.ts';
import { consoleTable, profileTable } from './report/table.ts';
import { saveReport, writeProfile, writeReport } from './report/write.ts';
import { collectFigures, type FigureCollector } from './support/collect-figures.ts';
import { machine } from './support/machine.ts';
import { API_KEY } from './support/message.ts';
import { PEERS, type Peer, type RunningPeer } from './support/peers.ts';
import { settingsFrom } from './support/settings.ts';
import { startUpstream } from './support/upstream-process.ts';

/** With fewer, the compiler is still at work while messages are measured. */
const WARM_UP_MESSAGES = 15_000;
/** For the memory of streams, where the code of messages matters less. */
const MEMORY_WARM_UP_MESSAGES = 3_000;
const MESSAGES = 3_000;
const PAIRS = 500;
const WATCH_MS = 4_000;
const STALLED_MS = 3_000;
/** The time between two measurements of memory, until it no longer changes. */
const MEASURE_EVERY_MS = 400;
const FLOOD_BYTES = 256 * 2 ** 20;
const MIN_MS = 500;
const SIZES = [1_000, 5_000, 9_000] as const;
/** Open files per stream: two sockets, and a share for the peer itself. */
const FILES_PER_STREAM = 2.2;

const names = PEERS.map(({ name }) => name);
const { rounds, scale, only, out, profile: isProfile } = settingsFrom(process.argv.slice(2), names);
const scaled = (count: number) => Math.ceil(count * scale);
/** Has a lower limit, so that even a short trial measures something. */
const scaledMs = (ms: number) => Math.max(scaled(ms), Math.min(ms, MIN_MS));
const upstream = await startUpstream();
const direct: RunningPeer = {
  port: upstream.port,
  pid: upstream.pid,
  headers: [`X-API-KEY: ${API_KEY}`],
  close: async () => {},
};
const straight = collectFigures('direct');
const contestants = PEERS.filter(({ name }) => only?.includes(name) ?? true).map((peer) => ({
  peer,
  figures: collectFigures(peer.name),
}));
for (const { peer, figures } of contestants)
  if (peer.version() === undefined) figures.note('is not installed');
const present = contestants.filter(({ peer }) => peer.version() !== undefined);
try {
  if (isProfile) await profileRelay();
  else await compare();
} finally {
  await upstream.close();
}

async function compare(): Promise<void> {
  await measureSpeed();
  await measureMemory();
  const found = results();
  console.log(consoleTable(found));
  if (out === undefined) writeReport(found);
  else saveReport(found, out);
}

async function profileRelay(): Promise<void> {
  const folder = out ?? 'bench-results';
  const [warmUp, messages] = [scaled(WARM_UP_MESSAGES), scaled(MESSAGES)];
  const table = profileTable(await profile({ upstreamPort: upstream.port, folder, warmUp, messages }));
  console.log(table);
  if (out === undefined) writeProfile(table);
}

/** All peers run at the same time, and only the one that is measured is busy. */
async function measureSpeed(): Promise<void> {
  const running: { peer: RunningPeer; figures: FigureCollector }[] = [];
  try {
    for (const { peer, figures } of present) {
      await figures.try('start', async () => {
        const started = await peer.start(upstream.port);
        running.push({ peer: started, figures });
        await sendMany(started, scaled(WARM_UP_MESSAGES));
      });
    }
    for (let round = 0; round < rounds; round++) {
      progress(`CPU, delays, throughput and leaving clients, round ${round + 1} of ${rounds}`);
      const still = await eventFigures(direct, scaledMs(WATCH_MS));
      straight.add({ delayP50: still.delayP50, delayP99: still.delayP99 });
      for (const { peer, figures } of inTurn(running, round)) await measureOne(peer, figures, still);
    }
  } finally {
    for (const { peer } of running) await peer.close();
  }
}

/** Measures one round of a running peer; `still` are the delays of events without a peer. */
async function measureOne(peer: RunningPeer, figures: FigureCollector, still: EventFigures): Promise<void> {
  await figures.try('messages', async () => ({
    cpuPerMessage: await cpuPerMessage(peer, scaled(MESSAGES)),
  }));
  await figures.try('first events', async () => {
    const { through, direct: twins } = await firstEvents(peer, direct, scaled(PAIRS));
    straight.add({ firstEventP50: twins.p50, firstEventP99: twins.p99 });
    return { addedFirstEventP50: through.p50 - twins.p50, addedFirstEventP99: through.p99 - twins.p99 };
  });
  await figures.try('events', async () => {
    const { cpu, delayP50, delayP99 } = await eventFigures(peer, scaledMs(WATCH_MS));
    return {
      cpuPerEvent: cpu,
      addedDelayP50: delayP50 - still.delayP50,
      addedDelayP99: delayP99 - still.delayP99,
    };
  });
  await figures.try('throughput', async () => ({ throughput: await throughput(peer, scaled(FLOOD_BYTES)) }));
  await figures.try('leaving clients', async () => ({ aborts: await aborts(peer, upstream) }));
}

/** Uses a new process for each measurement, since a process does not return its memory. */
async function measureMemory(): Promise<void> {
  const sizes = SIZES.map(scaled);
  const files = Math.ceil((sizes.at(-1) as number) * FILES_PER_STREAM);
  const isEnough = (openFilesLimit() ?? Number.POSITIVE_INFINITY) >= files;
  for (let round = 0; round < rounds; round++) {
    progress(`memory, round ${round + 1} of ${rounds}`);
    for (const { peer, figures } of inTurn(present, round)) {
      await figures.try('stalled reader', () =>
        onFresh(peer, async (fresh) => ({ stalledPeak: await stalledPeak(fresh, scaledMs(STALLED_MS)) })),
      );
      if (!isEnough) figures.note(`memory per stream: needs ${files} open files (ulimit -Hn)`);
      else await figures.try('open streams', () => onFresh(peer, (fresh) => memoryFigures(fresh, sizes)));
    }
  }
}

async function memoryFigures(peer: RunningPeer, sizes: readonly number[]) {
  const [memory1000 = 0, memory5000 = 0, memory9000 = 0] = await memoryPerStream(peer, {
    sizes,
    measureEveryMs: scaled(MEASURE_EVERY_MS),
  });
  return { memory1000, memory5000, memory9000 };
}

async function onFresh<T>(peer: Peer, use: (peer: RunningPeer) => Promise<T>): Promise<T> {
  const fresh = await peer.start(upstream.port);
  try {
    // Warmed up first, so that only the memory of the streams is counted.
    await sendMany(fresh, scaled(MEMORY_WARM_UP_MESSAGES));
    return await use(fresh);
  } finally {
    await fresh.close();
  }
}

/** The peers in the order of this round: each round begins with another one. */
function inTurn<T>(all: readonly T[], round: number): T[] {
  const first = all.length === 0 ? 0 : round % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

function progress(text: string): void {
  process.stderr.write(`${text}\n`);
}

function results(): Results {
  return {
    takenAt: new Date().toISOString(),
    machine: machine(),
    node: process.version,
    rounds,
    direct: straight.figures() as Results['direct'],
    peers: contestants.map(({ peer, figures }) => ({
      name: peer.name,
      version: peer.version() ?? '',
      figures: figures.figures(),
      notes: figures.notes(),
    })),
  };
}
