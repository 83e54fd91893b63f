import type { Socket } from 'node:net';
import { hashPassword } from '../../src/authenticate/password/password-hash.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from './process.ts';
import { type RawClient, rawClient, rawMessage } from './raw-client.ts';
import { chunk, type RawUpstream, STREAM_HEAD, startRawUpstream } from './raw-upstream.ts';
import { USER } from './relay.ts';

const EVERY_MS = 10;

let upstream: RawUpstream;
let timer: NodeJS.Timeout;
const clients: RawClient[] = [];

/** Starts a relay process whose streams bring an event every 10 ms, with the time when it was sent; resolves with its port. */
export async function startTickingRelay(): Promise<number> {
  const streams: Socket[] = [];
  upstream = await startRawUpstream((socket) => {
    socket.write(STREAM_HEAD);
    streams.push(socket);
  });
  timer = setInterval(() => {
    for (const socket of streams) socket.write(chunk(`data: ${performance.now()}\n\n`));
  }, EVERY_MS);
  // A hash of the real cost, as `npm run user` makes it.
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

/** The 99th percentile of the delays of the events that came since `from`, in ms. */
export function lateness(streams: readonly RawClient[], from: number): number {
  const delays = streams
    .flatMap(({ reads }) => reads.filter(({ at }) => at >= from))
    .flatMap(({ bytes, at }) =>
      [...String(bytes).matchAll(/data: ([\d.]+)\n/g)].map(([, sent]) => at - Number(sent)),
    )
    .sort((a, b) => a - b);
  return delays[Math.floor((delays.length - 1) * 0.99)] as number;
}
