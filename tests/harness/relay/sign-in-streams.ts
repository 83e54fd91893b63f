import { existsSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { hashPassword } from '../../../src/authenticate/password/password-hash.ts';
import { type RawClient, rawClient, rawMessage } from '../clients/raw-client.ts';
import { chunk, type RawUpstream, STREAM_HEAD, startRawUpstream } from '../service/raw-upstream.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from './process.ts';
import { USER } from './relay.ts';

const EVERY_MS = 10;

let upstream: RawUpstream;
let timer: NodeJS.Timeout;
const clients: RawClient[] = [];
/** When each event was sent, and how long the relay and this process had waited for a core until then, in ms. */
let sent: { readonly at: number; readonly waitedMs: readonly [relay: number, own: number] }[] = [];

/** How long the main thread of a process could have run, but had no core, in ms; 0 where the system does not tell. */
export function waitedMs(pid: number): number {
  const path = `/proc/${pid}/task/${pid}/schedstat`;
  return existsSync(path) ? Number(readFileSync(path, 'latin1').split(' ')[1]) / 1e6 : 0;
}

/** Starts a relay process whose streams bring an event every 10 ms, with the time when it was sent; resolves with its port. */
export async function startTickingRelay(): Promise<number> {
  const streams: Socket[] = [];
  upstream = await startRawUpstream((socket) => {
    socket.write(STREAM_HEAD);
    streams.push(socket);
  });
  // A hash of the real cost, as `bot-relay user` makes it.
  const users = JSON.stringify({ users: [{ name: USER.name, hash: await hashPassword(USER.password) }] });
  const relay = startProcess({
    folder: freshFolder({ 'users.json': users }),
    environment: {
      ...inFrontOf(upstream.url),
      TRUST_PROXY: '1',
      CLIENT_LIMIT_PER_ADDRESS: '0',
      RATE_LIMIT: '100',
    },
  });
  sent = [];
  timer = setInterval(() => {
    const event = { at: performance.now(), waitedMs: [waitedMs(relay.pid), waitedMs(process.pid)] as const };
    sent.push(event);
    for (const socket of streams) socket.write(chunk(`data: ${event.at}\n\n`));
  }, EVERY_MS);
  return relay.listening();
}

/** Stops the relay and its clients; for `afterEach`. */
export async function stopTickingRelay(): Promise<void> {
  for (const { socket } of clients.splice(0)) socket.destroy();
  clearInterval(timer);
  await stopProcesses();
  await upstream.close();
}

/** Signs in and opens `count` streams; resolves when each has brought an event. */
export async function openTickingStreams(port: number, count: number): Promise<RawClient[]> {
  const cookie = await signInAt(port, USER.name, USER.password);
  const opened = Array.from({ length: count }, () => rawClient(port, rawMessage({ cookie })));
  clients.push(...opened);
  await Promise.all(opened.map((client) => client.waitFor('data: ')));
  return opened;
}

/** How late an event came, without the time in which the relay, or this process, had no core, in ms. */
function delayOf(event: number, cameAt: number): number {
  const before = sent.find(({ at }) => at === event)?.waitedMs ?? [0, 0];
  // The next one that was sent, or the last.
  const after = (sent.find(({ at }) => at >= cameAt) ?? sent.at(-1))?.waitedMs ?? before;
  // Both may have waited at the same time.
  return cameAt - event - Math.max(0, after[0] - before[0], after[1] - before[1]);
}

/** The 99th percentile of the delays of the events that came since `from`, in ms. */
export function lateness(streams: readonly RawClient[], from: number): number {
  const delays = streams
    .flatMap(({ reads }) => reads.filter(({ at }) => at >= from))
    .flatMap(({ bytes, at }) =>
      [...String(bytes).matchAll(/data: ([\d.]+)\n/g)].map(([, event]) => delayOf(Number(event), at)),
    )
    .sort((a, b) => a - b);
  return delays[Math.floor((delays.length - 1) * 0.99)] as number;
}
