import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { hashPassword } from '../../src/authenticate/password/password-hash.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from '../support/process.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { chunk, type RawUpstream, STREAM_HEAD, startRawUpstream } from '../support/raw-upstream.ts';
import { USER } from '../support/relay.ts';

const FLOOD = fileURLToPath(new URL('../support/sign-in-flood.ts', import.meta.url));
/** SIGN_INS=10000 measures what the documents say. */
const SIGN_INS = Number(process.env.SIGN_INS ?? 1000);
const STREAMS = 5;
const EVERY_MS = 10;

let upstream: RawUpstream;
let timer: NodeJS.Timeout;
let port: number;
beforeEach(async () => {
  // Every event says when it was sent.
  const streams: Socket[] = [];
  upstream = await startRawUpstream((socket) => {
    socket.write(STREAM_HEAD);
    streams.push(socket);
  });
  timer = setInterval(() => {
    for (const socket of streams) socket.write(chunk(`data: ${performance.now()}\n\n`));
  }, EVERY_MS);
  // The real cost: what `npm run user` makes.
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
  port = await relay.listening();
});
afterEach(async () => {
  clearInterval(timer);
  await stopProcesses();
  await upstream.close();
});

test('twenty people who sign in at the same moment all get in', async () => {
  await signInAt(port, USER.name, USER.password);
  const all = Array.from({ length: 20 }, () => signInAt(port, USER.name, USER.password));
  expect(new Set(await Promise.all(all)).size).toBe(20);
}, 90_000);

/** How long the events that came since `from` were on their way, in ms, in ascending order. */
function delays(clients: readonly RawClient[], from: number): number[] {
  return clients
    .flatMap(({ reads }) => reads.filter(({ at }) => at >= from))
    .flatMap(({ bytes, at }) =>
      [...String(bytes).matchAll(/data: ([\d.]+)\n/g)].map(([, sent]) => at - Number(sent)),
    )
    .sort((a, b) => a - b);
}
const percentile = (sorted: readonly number[], part: number) =>
  sorted[Math.floor((sorted.length - 1) * part)] as number;

async function flood(): Promise<Record<string, number>> {
  const child = spawn(process.execPath, [FLOOD, String(port), String(SIGN_INS)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  await once(child, 'close');
  return JSON.parse(printed);
}

test('streams go on smoothly while far more sign-ins come at once than can be checked', async () => {
  const cookie = await signInAt(port, USER.name, USER.password);
  const clients = Array.from({ length: STREAMS }, () => rawClient(port, rawMessage({ cookie })));
  await Promise.all(clients.map((client) => client.waitFor('data: ')));
  const calmFrom = performance.now();
  await sleep(1000);
  const calm = delays(clients, calmFrom);
  const from = performance.now();
  const statuses = await flood();
  const during = delays(clients, from);
  for (const { socket } of clients) socket.destroy();
  const [usual, late] = [percentile(calm, 0.99), percentile(during, 0.99)];
  expect((statuses[401] ?? 0) + (statuses[503] ?? 0)).toBe(SIGN_INS);
  expect(statuses[503] ?? 0).toBeGreaterThan(SIGN_INS / 2);
  // On a machine that does nothing else, `usual` is a few ms.
  expect(late).toBeLessThan(50 + 4 * usual);
}, 90_000);
