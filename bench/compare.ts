/**
 * What a message through the relay costs beside what people would use instead, in one run on one machine: every
 * peer carries the same messages to the same upstream, in turns, so that what else the machine does hits all.
 * README.md says how each figure is taken.
 */
import { aborts } from './figures/aborts.ts';
import { type EventFigures, eventFigures } from './figures/events.ts';
import { memoryPerStream, stalledPeak } from './figures/memory.ts';
import { cpuPerMessage, firstEvents, warmUp } from './figures/messages.ts';
import { throughput } from './figures/throughput.ts';
import type { Results } from './report/results.ts';
import { consoleTable } from './report/table.ts';
import { saveReport, writeReport } from './report/write.ts';
import { machine } from './support/machine.ts';
import { API_KEY } from './support/message.ts';
import { PEERS, type Peer, type RunningPeer } from './support/peers.ts';
import { openFilesLimit } from './support/process-usage.ts';
import { type Samples, samples } from './support/samples.ts';
import { settingsFrom } from './support/settings.ts';
import { startUpstream } from './support/upstream-process.ts';

const WARM_UP_MESSAGES = 3_000;
const MESSAGES = 3_000;
const PAIRS = 500;
const WATCH_MS = 4_000;
const FLOOD_BYTES = 256 * 2 ** 20;
const SIZES = [1_000, 5_000, 9_000] as const;
/** A stream takes two: one to the client, one to the upstream. The rest is the peer's own. */
const FILES_PER_STREAM = 2.2;

const names = PEERS.map(({ name }) => name);
const { rounds, scale, only, out } = settingsFrom(process.argv.slice(2), names);
const scaled = (count: number) => Math.ceil(count * scale);
const upstream = await startUpstream();
const direct: RunningPeer = {
  port: upstream.port,
  pid: upstream.pid,
  headers: [`X-API-KEY: ${API_KEY}`],
  close: async () => {},
};
const straight = samples('direct');
const contestants = PEERS.filter(({ name }) => only?.includes(name) ?? true).map((peer) => ({
  peer,
  samples: samples(peer.name),
}));
for (const { peer, samples } of contestants)
  if (peer.version() === undefined) samples.note('is not installed');
const present = contestants.filter(({ peer }) => peer.version() !== undefined);
try {
  await measureSpeed();
  await measureMemory();
} finally {
  await upstream.close();
}
const found = results();
console.log(consoleTable(found));
if (out === undefined) writeReport(found);
else saveReport(found, out);

/** All peers run at once, idle but for the one whose turn it is. */
async function measureSpeed(): Promise<void> {
  const running: { peer: RunningPeer; samples: Samples }[] = [];
  try {
    for (const { peer, samples } of present) {
      await samples.try('start', async () => {
        const started = await peer.start(upstream.port);
        running.push({ peer: started, samples });
        await warmUp(started, scaled(WARM_UP_MESSAGES));
      });
    }
    for (let round = 0; round < rounds; round++) {
      progress(`CPU, delays, throughput and leaving clients, round ${round + 1} of ${rounds}`);
      const still = await eventFigures(direct, scaled(WATCH_MS));
      straight.add({ delayP50: still.delayP50, delayP99: still.delayP99 });
      for (const { peer, samples } of inTurn(running, round)) await measureOne(peer, samples, still);
    }
  } finally {
    for (const { peer } of running) await peer.close();
  }
}

/** One round of everything that a running peer is asked for; `still` is how events come without it. */
async function measureOne(peer: RunningPeer, samples: Samples, still: EventFigures): Promise<void> {
  await samples.try('messages', async () => ({
    cpuPerMessage: await cpuPerMessage(peer, scaled(MESSAGES)),
  }));
  await samples.try('first events', async () => {
    const { through, direct: twins } = await firstEvents(peer, direct, scaled(PAIRS));
    straight.add({ firstEventP50: twins.p50, firstEventP99: twins.p99 });
    return { addedFirstEventP50: through.p50 - twins.p50, addedFirstEventP99: through.p99 - twins.p99 };
  });
  await samples.try('events', async () => {
    const { cpu, delayP50, delayP99 } = await eventFigures(peer, scaled(WATCH_MS));
    return {
      cpuPerEvent: cpu,
      addedDelayP50: delayP50 - still.delayP50,
      addedDelayP99: delayP99 - still.delayP99,
    };
  });
  await samples.try('throughput', async () => ({ throughput: await throughput(peer, scaled(FLOOD_BYTES)) }));
  await samples.try('leaving clients', async () => ({ aborts: await aborts(peer, upstream) }));
}

/** A fresh process each time: what a process has held once, it keeps. */
async function measureMemory(): Promise<void> {
  const sizes = SIZES.map(scaled);
  const files = Math.ceil((sizes.at(-1) as number) * FILES_PER_STREAM);
  const isEnough = openFilesLimit() >= files;
  for (let round = 0; round < rounds; round++) {
    progress(`memory, round ${round + 1} of ${rounds}`);
    for (const { peer, samples } of inTurn(present, round)) {
      await samples.try('stalled reader', () =>
        onFresh(peer, async (fresh) => ({ stalledPeak: await stalledPeak(fresh) })),
      );
      if (!isEnough) samples.note(`memory per stream: needs ${files} open files (ulimit -Hn)`);
      else await samples.try('open streams', () => onFresh(peer, (fresh) => memoryFigures(fresh, sizes)));
    }
  }
}

async function memoryFigures(peer: RunningPeer, sizes: readonly number[]) {
  const [memory1000 = 0, memory5000 = 0, memory9000 = 0] = await memoryPerStream(peer, sizes);
  return { memory1000, memory5000, memory9000 };
}

async function onFresh<T>(peer: Peer, use: (peer: RunningPeer) => Promise<T>): Promise<T> {
  const fresh = await peer.start(upstream.port);
  try {
    // So that memory which any running peer has is not counted as the streams'.
    await warmUp(fresh, scaled(WARM_UP_MESSAGES));
    return await use(fresh);
  } finally {
    await fresh.close();
  }
}

/** Another one begins in every round, so that nobody always follows the same one. */
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
    peers: contestants.map(({ peer, samples }) => ({
      name: peer.name,
      version: peer.version() ?? '',
      figures: samples.figures(),
      notes: samples.notes(),
    })),
  };
}
