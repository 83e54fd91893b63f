import type { Socket } from 'node:net';
import { afterAll, expect, jest, test } from '@jest/globals';
import { DONE, EVENTS } from '../harness/clients/joining.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { describeWithRedis, type RedisServer, startRedis } from '../harness/redis/redis.ts';
import {
  type MeasuredInstance,
  type Memory,
  measureRedis,
  startMeasured,
} from '../harness/relay/measured-instances.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { BEGINS, type EndingMessage, endRun, NAMES, RedisAway } from '../harness/relay/run-endings.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

jest.setTimeout(3_600_000);

/** `ENDED_RUNS` sets another number. */
const RUNS = Number(process.env.ENDED_RUNS ?? 1_000);
/** How many runs end in each way in one round, which loses two instances. */
const OF_EACH = RUNS < 500 ? 5 : 10;
const ROUND = OF_EACH * NAMES.length;
/** So much after the last run, everything must be as before, in ms: longer than a lost run, or a stop, is known. */
const SETTLE_MS = 180_000;
/** What one run may leave in memory, in bytes: unfinished messages are remembered for minutes, by a hash. */
const LEFT_BYTES = 100;
/** What the process itself may take more, in bytes. */
const BESIDES_BYTES = 400_000;

const USERS = ['ada', ...Array.from({ length: 2 * OF_EACH }, (_, n) => `user-${n}`)];

let redis: RedisServer;
let upstream: RawUpstream;
/** The bot service's end of the newest stream of each run, by the id of its message. */
const streams = new Map<string, Socket>();
/** How many runs had another end, since Redis was too slow on a busy machine. */
let timesAway = 0;

afterAll(async () => {
  await stopProcesses();
  await upstream.close();
  await redis.stop();
});

const CLOSES = 'Connection: close';
const HEAD = STREAM_HEAD.replace('\r\n\r\n', `\r\n${CLOSES}\r\n\r\n`);
const streamOf = (...events: readonly string[]) =>
  Buffer.concat([Buffer.from(HEAD), ...events.map((event) => chunk(event))]);

/** It ends each connection with its answer: what is open after that, the relay has not closed. */
function serve(socket: Socket, request: RawRequest): void {
  const { requestLine, body, all } = request;
  if (requestLine.includes('/message/suspend')) return void suspend(socket, requestLine);
  const { text, customMessageId } = JSON.parse(String(body)) as { text: string; customMessageId: string };
  const begins = BEGINS[text];
  if (begins) streams.set(customMessageId, socket);
  if (text === 'refused') socket.end(plainAnswer('422 No', [CLOSES]));
  else if (text === 'failed') socket.end(plainAnswer('500 No', [CLOSES]));
  else if (text === 'stopped') socket.end(plainAnswer('429 No', ['Retry-After: 15', CLOSES]));
  else if (text === 'broken before an answer') socket.destroy();
  else if (all('last-event-id').length > 0)
    socket.end(Buffer.concat([streamOf(...EVENTS.slice(3)), Buffer.from(LAST_CHUNK)]));
  else if (begins) socket.write(streamOf(...begins));
}

/** Ends the run of the conversation, if it has one. Its id is that of its only message. */
function suspend(socket: Socket, requestLine: string): void {
  const channel = new URL(requestLine.split(' ')[1] ?? '', 'http://service').searchParams;
  const stream = streams.get(channel.get('custom_channel_id') ?? '');
  stream?.end(Buffer.concat([chunk(DONE), Buffer.from(LAST_CHUNK)]));
  socket.end(stream ? jsonAnswer('200 OK', {}, [CLOSES]) : jsonAnswer('404 Not Found', {}, [CLOSES]));
}

const environment = () => ({
  ...{ PUBLIC_URL: 'http://app.example.com', REDIS_URL: redis.url, BOTS: 'acme/helper,acme/slow' },
  // So that the service and the page have one id for each conversation.
  ...{ CHANNELS: 'shared', JOIN_MAX_BYTES: '131072' },
  ...{ JOIN_GRACE_MS: '100', JOIN_KEEP_MS: '3000', JOIN_REMEMBER_MS: '1000' },
  ...{
    RATE_LIMIT: '100000',
    RATE_MAX_WAIT_MS: '20000',
    MAX_EXECUTION_MS: '60000',
    MAX_STREAMS_PER_USER: '2000',
  },
  ...{ CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' },
  ...{ SHUTDOWN_DELAY_MS: '0', SHUTDOWN_GRACE_MS: '500' },
});

const start = () => startMeasured(upstream.url, USERS, environment());

/** Resolves for all who wait once they are `count`, after `lose`. */
function barrier(count: number, lose: () => Promise<unknown>): () => Promise<void> {
  const isLost = Promise.withResolvers<unknown>();
  let waiting = 0;
  return async () => {
    waiting++;
    if (waiting === count) isLost.resolve(lose());
    await isLost.promise;
  };
}

/** Ends runs in each way, all ways beside each other. */
async function endRound(round: number, cookie: string, stay: readonly [MeasuredInstance, MeasuredInstance]) {
  const [killed, drained] = [await start(), await start()];
  const lose = (one: MeasuredInstance, signal: NodeJS.Signals) => () => {
    one.relay.signal(signal);
    return one.relay.exited;
  };
  const of = (word: string) => OF_EACH * NAMES.filter((name) => name.startsWith(word)).length;
  const lost = {
    killed: barrier(of('killed'), lose(killed, 'SIGKILL')),
    drained: barrier(of('drained'), lose(drained, 'SIGTERM')),
  };
  const end = (ending: string, n: number) => {
    const id =
      ending === 'short id' ? `m-${round}-${n}` : `message-of-${round}-${n}-${NAMES.indexOf(ending)}`;
    const message: EndingMessage = {
      ...{ id, cookie, redis, lost, mortal: { killed, drained } },
      user: `user-${ending === 'logged out' ? n : OF_EACH + n}`,
      carrier: stay[n % 2] as MeasuredInstance,
      other: stay[(n + 1) % 2] as MeasuredInstance,
      stream: () => streams.get(id),
    };
    return endRun(ending, message).catch(async (error) => {
      if (!(error instanceof RedisAway)) throw error;
      timesAway++;
      // The others of this way wait for it.
      const [how = ''] = ending.split(' ');
      if (how === 'killed' || how === 'drained') await lost[how]();
    });
  };
  const all = Array.from({ length: OF_EACH }, (_, n) => n);
  await Promise.all(
    NAMES.map(async (ending) => {
      // Only what waits for the loss of an instance must be there together.
      if (/^(killed|drained)/.test(ending)) await Promise.all(all.map((n) => end(ending, n)));
      else for (const n of all) await end(ending, n);
    }),
  );
  streams.clear();
}

/** What the instances and Redis have open. */
async function openAt(instances: readonly MeasuredInstance[]) {
  const open = await Promise.all(instances.map((instance) => instance.open()));
  return { redis: await measureRedis(redis), instances: open };
}

type Open = Awaited<ReturnType<typeof openAt>>;

const isSame = (one: Open, other: Open) => JSON.stringify(one) === JSON.stringify(other);

/** What they have open once that does not change any more. */
async function openAtFirst(instances: readonly MeasuredInstance[]): Promise<Open> {
  let open = await openAt(instances);
  for (let same = 0; same < 4; ) {
    await sleep(500);
    const next = await openAt(instances);
    same = isSame(open, next) ? same + 1 : 0;
    open = next;
  }
  return open;
}

/** Waits until the same is open as before; returns what is open then, or after `SETTLE_MS`. */
async function openAgain(instances: readonly MeasuredInstance[], before: Open): Promise<Open> {
  for (const since = performance.now(); ; await sleep(500)) {
    const open = await openAt(instances);
    if (isSame(open, before) || performance.now() - since > SETTLE_MS) return open;
  }
}

describeWithRedis('runs of all endings at two instances', () => {
  test(`leave nothing behind after ${RUNS} of them: no connection, subscription, key, socket, timer or memory`, async () => {
    upstream = await startRawUpstream(serve);
    redis = await startRedis();
    const stay = [await start(), await start()] as const;
    const memories = () => Promise.all(stay.map((instance) => instance.memory()));
    const cookie = await stay[0].signIn('ada');
    const before = await openAtFirst(stay);
    // What is made once is there after this.
    await endRound(0, cookie, stay);
    expect(await openAgain(stay, before)).toEqual(before);
    const memoryBefore = await memories();
    timesAway = 0;
    const rounds = Math.ceil(RUNS / ROUND);
    for (let round = 1; round <= rounds; round++) await endRound(round, cookie, stay);
    expect(await openAgain(stay, before)).toEqual(before);
    // One pause of Redis can be met by all that are beside each other.
    expect(timesAway).toBeLessThan((rounds * ROUND) / 3);
    const memory = await memories();
    const grown = memory.map(({ bytes }, n) => bytes - (memoryBefore[n] as Memory).bytes);
    process.stdout.write(
      `ended runs: ${JSON.stringify({ runs: rounds * ROUND, timesAway, before, memoryBefore, memory, grown })}\n`,
    );
    for (const [n, { objects }] of memory.entries()) {
      const before = (memoryBefore[n] as Memory).objects;
      // What the runs of one ending leave would be more: some timers are of what serves this question.
      for (const name of ['Timeout', 'AbortController', 'KeyObject'] as const)
        expect(objects[name]).toBeLessThan(before[name] + OF_EACH);
    }
    for (const bytes of grown) expect(bytes).toBeLessThan(rounds * ROUND * LEFT_BYTES + BESIDES_BYTES);
  });
});
