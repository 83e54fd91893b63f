import { randomUUID } from 'node:crypto';
import { renameSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, expect, jest, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { call } from '../support/call.ts';
import { samplesOf, total } from '../support/metric-samples.ts';
import { mostInWindow } from '../support/numbered-messages.ts';
import { dechunk } from '../support/raw-client.ts';
import { chunk, type RawRequest, STREAM_HEAD, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import { BOT_PATH, CANARY } from '../support/relay.ts';
import { whileAwake } from '../support/while-awake.ts';
import {
  type LogLine,
  lives,
  ofWorker,
  startWorkersRelay,
  stopWorkersRelays,
  type WorkersRelay,
  workerPids,
} from '../support/workers.ts';

jest.setTimeout(60_000);
afterAll(stopWorkersRelays);

let shared: Promise<WorkersRelay> | undefined;
/** A message that is answered at once. */
const SHORT = '{"short":true}';
const answer = (socket: Socket, { body }: RawRequest) =>
  void socket.write(
    String(body) === SHORT
      ? wholeStream('data: 1\n\n')
      : Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]),
  );
/** Two workers for all cases. */
const twoWorkers = () => {
  shared ??= startWorkersRelay({
    workers: 2,
    environment: { UPSTREAM_API_KEYS: '', UPSTREAM_API_KEYS_FILE: 'keys', MAX_STREAMS_PER_USER: '100' },
    onMessage: answer,
    files: { keys: CANARY.key },
  });
  return shared;
};

/** Calls each of two workers; returns their answers by worker number. */
async function askBoth({ port, logged, reaching }: WorkersRelay, path: string, cookie: string) {
  const answers = new Map<unknown, number>();
  for (const number of [1, 2]) {
    const id = randomUUID();
    const headers = { Cookie: cookie, 'X-Request-Id': id };
    const { status } = await reaching(number, () => call(port, path, { headers }));
    const [line] = await logged(1, ({ requestId }) => requestId === id);
    answers.set(line?.worker, status);
  }
  return answers;
}

const isMessage = ({ route }: LogLine) => String(route).endsWith('/message/sse');

describeWithRedis('two workers', () => {
  test('both serve on one port, with the same sessions', async () => {
    const deployment = await twoWorkers();
    const { port, lines, signIn } = deployment;
    expect(lines(({ msg }) => msg === 'listening')).toEqual([
      expect.objectContaining({ worker: 1, port }),
      expect.objectContaining({ worker: 2, port }),
    ]);
    const cookie = await signIn();
    const both = (status: number) => new Map([1, 2].map((worker) => [worker, status]));
    expect(await askBoth(deployment, '/auth/session', cookie)).toEqual(both(200));

    const streams = await deployment.streamAtEach(2, cookie);
    const logout = await call(port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
    expect(logout.status).toBe(204);
    for (const { client } of streams) {
      await client.closed;
      expect(dechunk(client.text())).toMatchObject({
        body: expect.stringMatching(/^data: 1\n\nevent: error\n.*"code":"session_ended"/),
        complete: true,
      });
    }
    expect(await askBoth(deployment, '/auth/session', cookie)).toEqual(both(401));
    for (const line of lines(({ route }) => route !== undefined)) expect([1, 2]).toContain(line.worker);
  });

  test(
    'keep the budget of a bot together',
    whileAwake(async () => {
      const { port, arrivals: all, signIn, logged, lines, reaching } = await twoWorkers();
      const [arrivedBefore, servedBefore] = [all.length, lines(isMessage).length];
      // A session has at most two places in a waiting line.
      const cookies: string[] = [];
      while (cookies.length < 15) cookies.push(await signIn());
      const send = (some: readonly string[]) =>
        some.map((cookie) =>
          call(port, BOT_PATH, {
            method: 'POST',
            headers: { 'Content-Type': 'application/json', Cookie: cookie },
            body: SHORT,
          }),
        );
      const first = await reaching(1, () => Promise.all(send(cookies.slice(0, 5))));
      const others = await reaching(2, () => Promise.all(send(cookies.slice(5))));
      const arrivals = all.slice(arrivedBefore);
      const statuses = [...first, ...others].map(({ status }) => status);
      expect(statuses.filter((status) => status === 200).length).toBe(arrivals.length);
      expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
      expect(arrivals.length).toBeGreaterThan(5);
      expect(mostInWindow(arrivals, 1000)).toBeLessThanOrEqual(5);
      // Two separate workers would send five messages each in the first second.
      const served = await logged(servedBefore + 15, isMessage);
      const sent = served
        .slice(servedBefore)
        .filter(({ status }) => status === 200)
        .map(({ worker }) => worker);
      expect(new Set(sent)).toEqual(new Set([1, 2]));
    }),
  );

  test('both serve the package of the client', async () => {
    const deployment = await twoWorkers();
    const answers = await askBoth(deployment, '/client/bot-relay-client.tgz', '');
    expect([...answers].sort()).toEqual([
      [1, 200],
      [2, 200],
    ]);
  });

  test('both read their files on SIGHUP to the primary', async () => {
    const { relay, folder, logged } = await twoWorkers();
    writeFileSync(join(folder, 'keys.new'), CANARY.secondKey);
    renameSync(join(folder, 'keys.new'), join(folder, 'keys'));
    relay.signal('SIGHUP');
    const reading = await logged(2, ({ msg }) => msg === 'reading the files of keys and bots');
    expect(reading.map(({ worker }) => worker).sort()).toEqual([1, 2]);
    const reloaded = await logged(2, ({ msg }) => msg === 'reloaded');
    expect(reloaded.map(({ worker }) => worker).sort()).toEqual([1, 2]);
    const settings = { keys: [secret(CANARY.secondKey).fingerprint], own: {} };
    for (const line of reloaded) expect(line.settings).toEqual(settings);
  });
});

describeWithRedis('the metrics of two workers', () => {
  test('are served together, each series with its worker, and only those of a replaced worker begin again', async () => {
    const deployment = await twoWorkers();
    const { port, folder, scrape, logged, signIn } = deployment;
    const swapUsers = (from: string, to: string) => renameSync(join(folder, from), join(folder, to));
    const cookie = await signIn();
    await askBoth(deployment, '/auth/session', cookie);
    await deployment.streamAtEach(2, cookie);
    const before = await scrape();
    const samples = samplesOf(before);
    for (const { labels } of samples) expect(['1', '2', 'primary']).toContain(labels.worker);
    const series = samples.map(({ name, labels }) => JSON.stringify([name, Object.entries(labels).sort()]));
    expect(series.length).toBe(new Set(series).size);
    for (const head of ['HELP', 'TYPE']) {
      const names = before.match(new RegExp(`^# ${head} \\S+`, 'gm')) ?? [];
      expect(names.length).toBe(new Set(names).size);
    }
    for (const worker of [1, 2]) {
      expect(ofWorker(before, 'bot_relay_open_streams', worker)).toBeGreaterThan(0);
      expect(ofWorker(before, 'bot_relay_requests_total', worker)).toBeGreaterThan(0);
      expect(total(before, 'bot_relay_ready', { worker: String(worker), check: 'redis' })).toBe(1);
    }
    expect(total(before, 'process_resident_memory_bytes', { worker: 'primary' })).toBeGreaterThan(10_000_000);
    expect((await call(port, '/metrics')).status).toBe(404);

    // No other worker starts until it is back.
    swapUsers('users.json', 'users.away');
    process.kill(workerPids(deployment).get(1) as number, 'SIGKILL');
    await logged(1, ({ msg }) => msg === 'worker ended');
    const between = await scrape();
    swapUsers('users.away', 'users.json');
    expect(samplesOf(between).filter(({ labels }) => labels.worker === '1')).toEqual([
      { name: 'bot_relay_ready', labels: { check: 'accepting', worker: '1' }, value: 0 },
    ]);
    await logged(3, ({ msg }) => msg === 'listening');
    const after = await scrape();
    expect(ofWorker(after, 'bot_relay_requests_total', 1)).toBe(0);
    expect(ofWorker(after, 'bot_relay_open_streams', 1)).toBe(0);
    expect(total(after, 'bot_relay_ready', { worker: '1', check: 'accepting' })).toBe(1);
    for (const text of [between, after]) {
      for (const { name, labels, value } of samples) {
        const isCounter = /^bot_relay_.*_(total|count|bucket)$/.test(name);
        if (labels.worker === '2' && isCounter)
          expect(total(text, name, labels)).toBeGreaterThanOrEqual(value);
      }
    }
  });

  test('do not wait for a worker that hangs, and ask it only once, however many scrapes come meanwhile', async () => {
    const deployment = await twoWorkers();
    const stuck = workerPids(deployment).get(2) as number;
    const printed = deployment.relay.stderr().length;
    process.kill(stuck, 'SIGSTOP');
    const from = performance.now();
    const scrapes = Promise.all(Array.from({ length: 20 }, () => deployment.scrape()));
    // A worker that stays suspended would never end.
    const texts = await scrapes.finally(() => process.kill(stuck, 'SIGCONT'));
    // Prometheus gives up after 10 s, and then has the metrics of neither worker.
    expect(performance.now() - from).toBeLessThan(8_000);
    for (const text of texts) {
      expect(total(text, 'bot_relay_ready', { worker: '1' })).toBe(2);
      expect(total(text, 'bot_relay_ready', { worker: '2' })).toBe(0);
      expect(ofWorker(text, 'process_resident_memory_bytes', 2)).toBe(0);
    }
    expect(ofWorker(await deployment.scrape(), 'process_resident_memory_bytes', 2)).toBeGreaterThan(0);
    // Node.js warns here about too many listeners.
    expect(deployment.relay.stderr().slice(printed)).toBe('');
  });
});

describeWithRedis('two workers', () => {
  test('end when their primary is killed, and leave no open port behind', async () => {
    const deployment = await twoWorkers();
    const { relay, port } = deployment;
    const streams = await deployment.streamAtEach(2, await deployment.signIn());
    const pids = [...workerPids(deployment).values()];
    expect(pids.filter(lives)).toHaveLength(2);
    relay.signal('SIGKILL');
    // The output ends only when neither the process nor its workers can write to it.
    expect(await relay.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(pids.filter(lives)).toEqual([]);
    for (const { client } of streams) {
      await client.closed;
      expect(dechunk(client.text())).toMatchObject({ complete: false });
    }
    await expect(call(port, '/healthz')).rejects.toThrow('ECONNREFUSED');
  });
});
