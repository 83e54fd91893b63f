import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import type { HeapProfiler, Profiler } from 'node:inspector';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startRelay } from '../support/relay-process.ts';
import { waitUntil } from '../support/wait.ts';
import { sendMany } from './messages.ts';

const PROFILER = fileURLToPath(new URL('../support/profiler.ts', import.meta.url));
const WRITE_TIMEOUT_MS = 30_000;

/** What a part of the code costs for one message. */
export interface PartCost {
  readonly part: string;
  readonly us: number;
  readonly kib: number;
}

export interface Profiled {
  readonly upstreamPort: number;
  /** The folder for `relay.cpuprofile` and `relay.heapprofile`, which the developer tools of Chromium can open. */
  readonly folder: string;
  readonly warmUp: number;
  readonly messages: number;
}

/** Profiles a relay while it carries messages, after a warm-up; the dearest part comes first. */
export async function profile({ upstreamPort, folder, warmUp, messages }: Profiled): Promise<PartCost[]> {
  mkdirSync(folder, { recursive: true });
  const [cpuFile, heapFile] = [join(folder, 'relay.cpuprofile'), join(folder, 'relay.heapprofile')];
  for (const file of [cpuFile, heapFile]) rmSync(file, { force: true });
  const relay = await startRelay(upstreamPort, { PROFILE_FOLDER: resolve(folder) }, ['--import', PROFILER]);
  try {
    const peer = { ...relay, headers: [`Cookie: ${relay.cookie}`] };
    await sendMany(peer, warmUp);
    process.kill(relay.pid, 'SIGUSR2');
    for (const file of [cpuFile, heapFile]) {
      await sendMany(peer, messages);
      process.kill(relay.pid, 'SIGUSR2');
      await waitUntil(() => existsSync(file), WRITE_TIMEOUT_MS);
    }
  } finally {
    await relay.close();
  }
  const cpu = JSON.parse(readFileSync(cpuFile, 'utf8')) as Profiler.Profile;
  const heap = JSON.parse(readFileSync(heapFile, 'utf8')) as HeapProfiler.SamplingHeapProfile;
  return costsOf(cpu, heap, messages);
}

/** Adds up the profiles by the parts of the code, divided by the number of messages. */
export function costsOf(
  cpu: Profiler.Profile,
  heap: HeapProfiler.SamplingHeapProfile,
  messages: number,
): PartCost[] {
  const us = new Map<string, number>();
  const bytes = new Map<string, number>();
  const add = (sums: Map<string, number>, part: string, value: number) =>
    sums.set(part, (sums.get(part) ?? 0) + value);
  const parts = new Map(cpu.nodes.map(({ id, callFrame }) => [id, partOf(callFrame)]));
  for (const [n, id] of (cpu.samples ?? []).entries()) {
    const part = parts.get(id);
    if (part !== undefined) add(us, part, cpu.timeDeltas?.[n] ?? 0);
  }
  const nodes = [heap.head];
  for (const { callFrame, selfSize, children } of nodes) {
    const part = partOf(callFrame);
    if (part !== undefined) add(bytes, part, selfSize);
    nodes.push(...children);
  }
  return [...new Set([...us.keys(), ...bytes.keys()])]
    .map((part) => ({
      part,
      us: (us.get(part) ?? 0) / messages,
      kib: (bytes.get(part) ?? 0) / messages / 1024,
    }))
    .sort((one, other) => other.us - one.us);
}

/** The room of this project, the package, or the part of Node.js that a function belongs to; undefined for no work. */
function partOf({ url, functionName }: { readonly url: string; readonly functionName: string }) {
  if (functionName === '(idle)' || functionName === '(root)' || url === 'node:inspector') return undefined;
  if (functionName === '(garbage collector)') return 'garbage collection';
  const room = /\/dist\/(?:([\w-]+)\/|[\w-]+\.js$)/.exec(url);
  if (room && !url.includes('/node_modules/')) return `\`${room[1] ? `${room[1]}/` : 'app.ts'}\``;
  const [, name] = /\/node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*\/node_modules\/)/.exec(url) ?? [];
  if (name !== undefined) return name;
  if (url.startsWith('node:')) return 'Node.js, in JavaScript';
  return /^(writev|writeUtf8String|writeLatin1String|writeBuffer|readStart|shutdown)$/.test(functionName)
    ? 'writing to sockets'
    : 'Node.js and V8, native';
}
