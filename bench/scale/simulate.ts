import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { startChild } from '../support/child.ts';
import type { Load, Seen } from './load.ts';

/** The instances of a load run in at most so many processes. */
const PROCESSES = 4;
const SCRIPT = fileURLToPath(new URL('./instances.ts', import.meta.url));

export interface Simulated {
  /** Resolves when all messages are answered. */
  ended(): Promise<unknown>;
  /** What all instances have seen together. */
  seen(): Promise<Seen>;
}

/** Starts the instances of `load`; resolves when they begin to send. @throws Error if one of the processes fails */
export async function simulate(load: Load): Promise<Simulated> {
  const count = Math.min(load.instances, PROCESSES);
  const share = {
    ...load,
    instances: Math.round(load.instances / count),
    users: Math.round(load.users / count),
    messagesPerSecond: load.messagesPerSecond / count,
    streams: Math.round(load.streams / count),
  };
  const processes = Array.from({ length: count }, () => start(share));
  await Promise.all(processes.map(({ ready }) => ready));
  const all = Promise.all(processes.map(({ seen }) => seen));
  return {
    ended: () => all,
    seen: async () => sum(await all),
  };
}

function start(load: Load): { readonly ready: Promise<void>; readonly seen: Promise<Seen> } {
  const child = startChild(process.execPath, [SCRIPT, JSON.stringify(load)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ready = Promise.withResolvers<void>();
  const seen = Promise.withResolvers<Seen>();
  createInterface(child.stdout as NodeJS.ReadableStream).on('line', (line) => {
    if (line === 'ready') ready.resolve();
    else seen.resolve(JSON.parse(line) as Seen);
  });
  child.once('close', () => {
    for (const { reject } of [ready, seen]) reject(new Error('a process of instances failed'));
  });
  return { ready: ready.promise, seen: seen.promise };
}

function sum(all: readonly Seen[]): Seen {
  const of = (name: 'messages' | 'granted' | 'failed') => all.reduce((total, seen) => total + seen[name], 0);
  const reservationsMs = all.flatMap((seen) => seen.reservationsMs);
  return { messages: of('messages'), granted: of('granted'), failed: of('failed'), reservationsMs };
}
