import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, jest, test } from '@jest/globals';
import { endOf, type JoinInstances, runsEnded, startJoinInstances } from '../support/join-instances.ts';
import {
  bodyOf,
  DELTA,
  EVENTS,
  INIT,
  KEPT,
  messageBody,
  problemOf,
  statusOf,
  WHOLE,
} from '../support/joining.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  startProcess,
  stopProcesses,
} from '../support/process.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { type RawRequest, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { TestRelay } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';

jest.setTimeout(60_000);

afterAll(() => stopProcesses());

const AT_SHUTDOWN = { SHUTDOWN_DELAY_MS: '0', SHUTDOWN_GRACE_MS: '500' };

const isResumption = ({ all }: RawRequest) => all('last-event-id').length > 0;

/** An instance in this process, and one that can be lost, on one Redis. */
interface Pair {
  readonly all: JoinInstances;
  readonly relay: TestRelay;
  readonly holder: RelayProcess;
  /** Sends the message to the instance that can be lost. */
  say(): RawClient;
  /** The messages that have come, without the resumptions. */
  runs(): readonly RawRequest[];
  /** The outcomes of the runs that this process has taken, or ended. */
  moves(): readonly unknown[];
}

interface PairOptions {
  /** What the bot service begins each stream with; nothing if undefined. */
  readonly begins?: readonly string[];
  /** Environment of the instance that can be lost. */
  readonly environment?: Record<string, string>;
  /** The whole answer to a resumption; if null, its stream begins and stays open. */
  readonly resumes?: Buffer | null;
}

/** A case with a pair of its own: each waits for seconds until a lease is over, so that they wait side by side. */
function withPair(options: PairOptions, run: (pair: Pair) => Promise<void>): () => Promise<void> {
  const { begins, environment, resumes = Buffer.from(wholeStream(...EVENTS.slice(3))) } = options;
  return async () => {
    const all = await startJoinInstances(1, { METRICS_PORT: '9090' }, (request, socket) => {
      if (!isResumption(request)) return begins;
      if (!resumes) return [EVENTS[3] as string];
      socket.write(resumes);
      return undefined;
    });
    const holder = startProcess({
      folder: freshFolder({ 'users.json': '{"users":[]}' }),
      environment: {
        ...inFrontOf(all.upstream.url),
        ...{ PUBLIC_URL: 'http://app.example.com', REDIS_URL: all.redis.url, JOIN: 'on' },
        ...environment,
      },
    });
    const clients: RawClient[] = [];
    try {
      await run(await pairOf(all, holder, clients));
    } finally {
      for (const { socket } of clients) socket.destroy();
      holder.signal('SIGKILL');
      await holder.exited;
      await all.close();
    }
  };
}

async function pairOf(all: JoinInstances, holder: RelayProcess, clients: RawClient[]): Promise<Pair> {
  const port = await holder.listening();
  await holder.waitFor(/redis ready/);
  const relay = all.relays[0] as TestRelay;
  return {
    ...{ all, relay, holder },
    say() {
      const text = rawMessage({ cookie: all.cookie, body: messageBody(), headers: ['Connection: close'] });
      const client = rawClient(port, text);
      clients.push(client);
      return client;
    },
    runs: () => all.upstream.requests.filter((request) => !isResumption(request)),
    moves: () => relay.logs.filter(({ msg }) => msg === 'run moved').map(({ outcome }) => outcome),
  };
}

describeWithRedis('a run', () => {
  test.concurrent(
    'whose instance is killed is resumed by an instance that has a reader, after the first id',
    withPair({ begins: [INIT, DELTA, KEPT] }, async ({ all, relay, holder, say, moves }) => {
      await say().waitFor('message.complete');
      const reader = all.say(0);
      await reader.waitFor('message.complete');
      holder.signal('SIGKILL');
      // Who has got the last id, and comes while nobody carries the run.
      const resumed = all.say(0, {}, ['Last-Event-ID: 7']);
      expect(await bodyOf(reader)).toBe(WHOLE);
      expect(await bodyOf(resumed)).toBe(EVENTS.slice(3).join(''));
      expect(await bodyOf(all.say(0))).toBe(WHOLE);
      expect(all.upstream.requests.map(({ all }) => all('last-event-id'))).toEqual([[], ['7']]);
      expect(moves()).toEqual(['taken_over']);
      expect(await relay.metricsText()).toMatch(/^bot_relay_runs_moved_total\{outcome="taken_over"\} 1$/m);
    }),
  );

  test.concurrent(
    'whose instance is killed is resumed for one who comes only after that',
    withPair({ begins: [INIT, DELTA, KEPT] }, async ({ all, holder, say, runs }) => {
      await say().waitFor('message.complete');
      await sleep(200);
      holder.signal('SIGKILL');
      await holder.exited;
      expect(await bodyOf(all.say(0))).toBe(WHOLE);
      expect(runs()).toHaveLength(1);
    }),
  );

  test.concurrent(
    'whose instance is killed ends truthfully for all who read it, if it had no id, and does not run again',
    withPair({ begins: [INIT, DELTA] }, async ({ all, holder, say, runs, moves }) => {
      await say().waitFor('message.delta');
      const readers = [all.say(0), all.say(0)];
      for (const reader of readers) await reader.waitFor('message.delta');
      holder.signal('SIGKILL');
      for (const reader of readers) {
        expect(await endOf(reader)).toEqual({ events: INIT + DELTA, code: 'answer_lost' });
      }
      await runsEnded(all.redis);
      for (const again of [all.say(0), all.byName(0)]) {
        expect(await endOf(again)).toEqual({ events: INIT + DELTA, code: 'answer_lost' });
      }
      expect(runs()).toHaveLength(1);
      expect(moves()).toEqual(['ended']);
    }),
  );

  test.concurrent(
    'whose instance is killed ends truthfully before its stream begins, too',
    withPair({}, async ({ all, relay, holder, say, runs }) => {
      const asked = all.upstream.nextRequest();
      say();
      await asked;
      const reader = all.say(0);
      await until(() => relay.logs.some(({ msg }) => msg === 'run joined'));
      holder.signal('SIGKILL');
      expect(await problemOf(reader)).toMatchObject({ code: 'answer_lost', maybeStarted: true });
      expect(statusOf(reader)).toBe(502);
      expect(await problemOf(all.say(0))).toMatchObject({ code: 'answer_lost' });
      expect(runs()).toHaveLength(1);
    }),
  );

  test.concurrent(
    'is given up by an instance that was stopped and comes back, and its own readers go on in the log',
    withPair({ begins: [INIT, DELTA, KEPT], resumes: null }, async ({ all, holder, say, runs }) => {
      const own = say();
      await own.waitFor('message.complete');
      const reader = all.say(0);
      await reader.waitFor('message.complete');
      const old = all.streams[0];
      holder.signal('SIGSTOP');
      await reader.waitFor('"n":4');
      // What comes meanwhile on the connection of the one that was stopped goes to nobody.
      old?.write('8\r\ndata: x\n\r\n');
      holder.signal('SIGCONT');
      await holder.waitFor(/"outcome":"lost".*"msg":"run moved"/);
      await until(() => old?.destroyed === true);
      all.emit(...EVENTS.slice(4));
      all.finish();
      for (const client of [own, reader]) expect(await bodyOf(client)).toBe(WHOLE);
      expect(runs()).toHaveLength(1);
    }),
  );

  test.concurrent(
    'that can be resumed is handed over by a shutdown, and its readers are told to send the same message',
    withPair(
      { begins: [INIT, DELTA, KEPT], environment: AT_SHUTDOWN },
      async ({ all, holder, say, runs }) => {
        const own = say();
        await own.waitFor('message.complete');
        holder.signal('SIGTERM');
        const body = await bodyOf(own);
        expect(body).toContain('"code":"draining"');
        expect(body).toContain('"retryable":"same message"');
        expect(await bodyOf(all.say(0))).toBe(WHOLE);
        await holder.exited;
        expect(runs()).toHaveLength(1);
        expect(holder.stdout()).toMatch(/"outcome":"handed_over".*"msg":"run moved"/);
      },
    ),
  );
});
