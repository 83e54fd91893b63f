import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { startChild } from './child.ts';

export interface UpstreamProcess {
  readonly port: number;
  readonly pid: number;
  /** How many streams of a bot `silent-NAME` are open, and when the last one closed (`process.hrtime.bigint()`, ns). */
  open(bot: string): Promise<{ count: number; lastClosedAt: bigint }>;
  /** When the messages to each bot `paced-N` arrived, in ms of the monotonic clock. */
  arrivals(): Promise<Record<string, number[]>>;
  close(): Promise<void>;
}

/** Starts the bot service of `../peers/upstream.ts` on a free port. @throws Error if it does not start */
export async function startUpstream(): Promise<UpstreamProcess> {
  const script = fileURLToPath(new URL('../peers/upstream.ts', import.meta.url));
  const child = startChild(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const port = await new Promise<number>((resolve, reject) => {
    createInterface(child.stdout as NodeJS.ReadableStream).once('line', (line) =>
      resolve((JSON.parse(line) as { port: number }).port),
    );
    exited.then(() => reject(new Error('the upstream did not start')));
  });
  return {
    port,
    pid: child.pid as number,
    async open(bot) {
      const response = await fetch(`http://127.0.0.1:${port}/open`);
      const silent = (await response.json()) as Record<string, { open: number; lastClosedAt: string }>;
      const { open = 0, lastClosedAt = '0' } = silent[bot] ?? {};
      return { count: open, lastClosedAt: BigInt(lastClosedAt) };
    },
    async arrivals() {
      const response = await fetch(`http://127.0.0.1:${port}/arrivals`);
      return (await response.json()) as Record<string, number[]>;
    },
    async close() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
