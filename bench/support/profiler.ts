/**
 * Loaded into the relay before its own code (`--import`). The first SIGUSR2 starts a CPU profile, the second one writes
 * it into the folder PROFILE_FOLDER and starts a profile of allocations, and the third one writes that: the one would
 * slow down the other.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { join } from 'node:path';

/** On average, one allocation in so many bytes is sampled. */
const SAMPLING_BYTES = 4_096;
const SAMPLING_US = 200;

const folder = process.env.PROFILE_FOLDER ?? '.';
const session = new Session();
session.connect();

const steps = [startCpu, startHeap, stopHeap];
process.on('SIGUSR2', () => void steps.shift()?.());

async function startCpu(): Promise<void> {
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: SAMPLING_US });
  await session.post('Profiler.start');
}

async function startHeap(): Promise<void> {
  const { profile } = await session.post('Profiler.stop');
  await session.post('HeapProfiler.startSampling', {
    samplingInterval: SAMPLING_BYTES,
    includeObjectsCollectedByMajorGC: true,
    includeObjectsCollectedByMinorGC: true,
  });
  write('relay.cpuprofile', profile);
}

async function stopHeap(): Promise<void> {
  const { profile } = await session.post('HeapProfiler.stopSampling');
  write('relay.heapprofile', profile);
}

/** Whoever waits for the file finds it whole. */
function write(name: string, profile: unknown): void {
  const file = join(folder, name);
  writeFileSync(`${file}.part`, JSON.stringify(profile));
  renameSync(`${file}.part`, file);
}
