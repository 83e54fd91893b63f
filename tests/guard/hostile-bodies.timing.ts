import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import {
  freshFolder,
  inFrontOf,
  signInAt,
  startProcess,
  stopProcesses,
  usersFile,
} from '../harness/relay/process.ts';
import { BOT_PATH, MESSAGE, USER } from '../harness/relay/relay.ts';
import { waitedMs } from '../harness/relay/sign-in-streams.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const PROGRAM = fileURLToPath(new URL('../harness/relay/hostile-bodies.ts', import.meta.url));
const HOSTILE_USERS = 20;
const SESSIONS_EACH = 10;
const SECONDS = 15;
const EVERY_MS = 50;

let upstream: RawUpstream;
afterEach(async () => {
  await stopProcesses();
  await upstream.close();
});

/** How long each message takes in ms, without the time in which the relay, or this process, had no core. */
async function timesOfMessages(port: number, pid: number, cookie: string, isOver: () => boolean) {
  const headers = { Cookie: cookie, 'Content-Type': 'application/json' };
  const waited = () => waitedMs(pid) + waitedMs(process.pid);
  const times: number[] = [];
  while (!isOver()) {
    const [startedAt, before] = [performance.now(), waited()];
    const answer = await call(port, BOT_PATH, { method: 'POST', headers, body: MESSAGE });
    const took = performance.now() - startedAt;
    expect(answer).toMatchObject({ status: 200, body: 'data: 1\n\n' });
    times.push(Math.max(0, took - (waited() - before)));
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, EVERY_MS - took)));
  }
  return times.sort((a, b) => a - b);
}

const percentile = (sorted: readonly number[], of: number) =>
  sorted[Math.floor((sorted.length - 1) * of)] as number;

test('20 users who each send 10 costly bodies a second do not delay the messages of another one', async () => {
  upstream = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
  const names = Array.from({ length: HOSTILE_USERS }, (_, n) => `hostile${n}`);
  const relay = startProcess({
    folder: freshFolder({ 'users.json': usersFile([USER.name, ...names]) }),
    environment: {
      ...inFrontOf(upstream.url),
      CLIENT_LIMIT_PER_ADDRESS: '0',
      CLIENT_LIMIT_PER_SESSION: '0',
      RATE_LIMIT: '1000',
    },
  });
  const port = await relay.listening();
  const cookie = await signInAt(port, USER.name, USER.password);
  const sessions: string[] = [];
  for (let n = 0; n < SESSIONS_EACH; n += 1)
    for (const name of names) sessions.push(await signInAt(port, name, USER.password));

  const args = [port, sessions, SECONDS].map((argument) => JSON.stringify(argument));
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  let isOver = false;
  const over = once(child, 'close').finally(() => {
    isOver = true;
  });
  const times = await timesOfMessages(port, relay.pid, cookie, () => isOver);
  await over;
  // The slowest two or three of some hundred messages depend on the machine more than on the bodies.
  const [half, late] = [percentile(times, 0.5), percentile(times, 0.95)];
  process.stderr.write(
    `${times.length} messages take ${half.toFixed(1)} ms, the 95th percentile ${late.toFixed(1)} ms\n`,
  );
  const statuses = JSON.parse(printed) as Record<string, number>;
  expect(Object.keys(statuses)).toEqual(expect.arrayContaining(['400', '413', '429']));
  expect(statuses).not.toHaveProperty('200');
  expect(late).toBeLessThan(100);
}, 120_000);
