import type { Socket } from 'node:net';
import { afterAll, expect, jest, test } from '@jest/globals';
import { DELTA, DONE, EVENTS, INIT, KEPT, messageBody } from '../harness/clients/joining.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis } from '../harness/redis/redis.ts';
import { type MeasuredInstance, measureRedis, startMeasured } from '../harness/relay/measured-instances.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { BOT_PATH } from '../harness/relay/relay.ts';
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
/** So much after the last run, everything must be as before, in ms: longer than a lost run, or a stop, is known. */
const SETTLE_MS = 180_000;
/** What one run may leave in memory, in bytes: unfinished messages are remembered for minutes, by a hash. */
const LEFT_BYTES = 100;
/** What the process itself may take more, in bytes. */
const BESIDES_BYTES = 400_000;
const USERS = ['ada', ...Array.from({ length: OF_EACH }, (_, n) => `user-${n}`)];

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

/** A message of its own conversation. Two instances get it, which stay but for the ways `killed` and `drained`. */
interface Message {
  readonly id: string;
  readonly clients: readonly RawClient[];
  readonly other: MeasuredInstance;
  readonly cookie: string;
  say(at: MeasuredInstance, headers?: readonly string[]): RawClient;
  emit(...events: readonly string[]): void;
  finish(...events: readonly string[]): void;
  suspend(): Promise<unknown>;
  /** Resolves when all messages of this round that wait for the same have come here, and the instance is gone. */
  lost(): Promise<void>;
}

interface Ending {
  /** What the bot service begins the stream with; undefined if it answers in another way. */
  readonly begins?: readonly string[];
  readonly act?: (message: Message) => unknown;
  /** What its clients have got in the end, as `textOf` has it. */
  readonly got?: RegExp;
}

const code = (name: string) => new RegExp(`"code":"${name}"`);
const cut = ({ id }: Message) => streams.get(id)?.destroy();
const leave = ({ clients }: Message) => clients.forEach(({ socket }) => void socket.destroy());
/** More than is kept of a run. */
const LARGE = Array.from({ length: 8 }, (_, n) => `data: {"n":${n},"x":"${'x'.repeat(32_700)}"}\n\n`);
const WITH_ID = [INIT, DELTA, KEPT];

/** The instance is gone: who has an id gets the rest of the answer elsewhere. */
const lose: Ending = {
  begins: WITH_ID,
  async act({ clients, lost, say, other }) {
    await lost();
    // Until its lease is over, who asks for it is given what is stored of it.
    await Promise.all(clients.map(({ closed }) => closed));
    await expectGot(say(other, ['Last-Event-ID: 7']), /run\.done/);
  },
  got: /answer_lost|cut$/,
};

/** Every way in which a run ends. */
const ENDINGS: Readonly<Record<string, Ending>> = {
  whole: { begins: [INIT, DELTA], act: ({ finish }) => finish(...EVENTS.slice(2)), got: /run\.done/ },
  'short id': { begins: [INIT], act: ({ finish }) => finish(DONE), got: /run\.done/ },
  'service error': {
    begins: [INIT],
    act: ({ finish }) => finish(DONE.replace('run.done', 'run.error')),
    got: /run\.error/,
  },
  refused: { got: code('upstream_refused') },
  failed: { got: code('upstream_bad_response') },
  unanswered: { got: code('upstream_unreachable') },
  'broken before an event': { begins: [], act: cut, got: code('upstream_stream_broken') },
  broken: { begins: [INIT], act: cut, got: code('upstream_stream_broken') },
  left: { begins: [INIT], act: leave },
  'left early': { act: leave },
  suspended: { begins: [INIT], act: ({ suspend }) => suspend(), got: /run\.done/ },
  stopped: {
    // One may come while the first is stopped already.
    async act({ clients, suspend }) {
      for (; !clients.every(({ socket }) => socket.destroyed); await sleep(200)) await suspend();
    },
    got: code('stopped'),
  },
  'logged out': {
    begins: [INIT],
    act: ({ other, cookie }) =>
      until(async () => (await other.post('/auth/logout', cookie)).status !== 503, 200),
    got: code('session_ended'),
  },
  'too large': { begins: [INIT, `data: ${'x'.repeat(70_000)}`], act: cut, got: /x+cut$/ },
  trimmed: {
    begins: [INIT],
    async act({ clients, emit, finish, say, other }) {
      // Event by event: nobody shall fall behind.
      for (const [n, event] of LARGE.entries()) {
        emit(event);
        for (const client of clients) await got(client, `{"n":${n},`);
      }
      await expectGot(say(other), code('run_not_kept'));
      finish(DONE);
    },
    got: /run\.done/,
  },
  resumed: {
    begins: WITH_ID,
    async act({ clients: [, left], say, other, finish }) {
      left?.socket.destroy();
      const resumed = say(other, ['Last-Event-ID: 7']);
      finish(...EVENTS.slice(3));
      await expectGot(resumed, /run\.done/);
    },
  },
  killed: lose,
  drained: lose,
};
const NAMES = Object.keys(ENDINGS);
const ROUND = OF_EACH * NAMES.length;

/** An instance has told a client that Redis is away: on a busy machine, its answers take too long. */
class RedisAway extends Error {}

function expectRedis({ text }: RawClient): void {
  if (/^HTTP\/1.1 503 [\s\S]*"code":"session_store_unavailable"/.test(text())) throw new RedisAway();
}

/** The head of an answer and what has come of its body; the body of a stream that was cut ends with `cut`. */
function textOf(client: RawClient): string {
  const text = client.text();
  if (!/^Transfer-Encoding: chunked\r$/im.test(text)) return text;
  const { body, complete } = dechunk(text);
  const isCut = client.socket.destroyed && !complete;
  return `${text.slice(0, text.indexOf('\r\n\r\n') + 4)}${body}${isCut ? 'cut' : ''}`;
}

/** The client has got this; fails if its answer has ended otherwise. */
async function got(client: RawClient, part: string): Promise<void> {
  await until(() => client.socket.destroyed || textOf(client).includes(part), 20);
  expectRedis(client);
  expect(textOf(client)).toContain(part);
}

async function expectGot(client: RawClient, what: RegExp): Promise<void> {
  await client.closed;
  expectRedis(client);
  expect(textOf(client)).toMatch(what);
}

const CLOSES = 'Connection: close';
const HEAD = STREAM_HEAD.replace('\r\n\r\n', `\r\n${CLOSES}\r\n\r\n`);
const streamOf = (...events: readonly string[]) => Buffer.concat([Buffer.from(HEAD), ...events.map(chunk)]);
const endOf = (...events: readonly string[]) =>
  Buffer.concat([...events.map(chunk), Buffer.from(LAST_CHUNK)]);
/** The answers of the service that are no stream. */
const ANSWERS: Readonly<Record<string, string>> = {
  refused: plainAnswer('422 No', [CLOSES]),
  failed: plainAnswer('500 No', [CLOSES]),
  stopped: plainAnswer('429 No', ['Retry-After: 15', CLOSES]),
  unanswered: '',
};

/** It ends each connection with its answer: what is open after that, the relay has not closed. */
function serve(socket: Socket, { requestLine, body, all }: RawRequest): void {
  if (requestLine.includes('/message/suspend')) return void suspend(socket, requestLine);
  const { text, customMessageId } = JSON.parse(String(body)) as { text: string; customMessageId: string };
  const answer = ANSWERS[text];
  if (answer !== undefined) return void socket.end(answer);
  if (all('last-event-id').length > 0)
    return void socket.end(Buffer.concat([streamOf(), endOf(...EVENTS.slice(3))]));
  streams.set(customMessageId, socket);
  socket.write(streamOf(...(ENDINGS[text]?.begins ?? [])));
}

/** Ends the run of the conversation, if it has one. Its id is that of its only message. */
function suspend(socket: Socket, requestLine: string): void {
  const channel = new URL(requestLine.split(' ')[1] ?? '', 'http://service').searchParams;
  const stream = streams.get(channel.get('custom_channel_id') ?? '');
  stream?.end(endOf(DONE));
  socket.end(stream ? jsonAnswer('200 OK', {}, [CLOSES]) : jsonAnswer('404 Not Found', {}, [CLOSES]));
}

const start = () =>
  startMeasured(upstream.url, USERS, {
    ...{ PUBLIC_URL: 'http://app.example.com', REDIS_URL: redis.url, BOTS: 'acme/helper,acme/slow' },
    // So that the service and the page have one id for each conversation.
    ...{ CHANNELS: 'shared', JOIN_MAX_BYTES: '131072' },
    ...{ JOIN_GRACE_MS: '100', JOIN_KEEP_MS: '3000', JOIN_REMEMBER_MS: '1000', MAX_EXECUTION_MS: '60000' },
    ...{ RATE_LIMIT: '100000', RATE_MAX_WAIT_MS: '20000', MAX_STREAMS_PER_USER: '2000' },
    ...{ CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' },
    ...{ SHUTDOWN_DELAY_MS: '0', SHUTDOWN_GRACE_MS: '500' },
  });

type Two = readonly [MeasuredInstance, MeasuredInstance];

/**
 * Starts an instance that gets the signal when `OF_EACH` messages wait for it in `lost`. `lost` resolves when the instance
 * has exited.
 */
async function startMortal(signal: NodeJS.Signals) {
  const instance = await start();
  const gone = Promise.withResolvers<unknown>();
  let waiting = 0;
  return {
    instance,
    async lost() {
      waiting += 1;
      if (waiting === OF_EACH) {
        instance.relay.signal(signal);
        gone.resolve(instance.relay.exited);
      }
      await gone.promise;
    },
  };
}

/** Ends runs in each way, all ways beside each other. */
async function endRound(round: number, ofAll: string, stay: Two): Promise<void> {
  const mortals = { killed: await startMortal('SIGKILL'), drained: await startMortal('SIGTERM') };
  async function endRun(name: string, n: number): Promise<void> {
    const { begins, act, got: expected } = ENDINGS[name] as Ending;
    const id = name === 'short id' ? `m-${round}-${n}` : `message-of-${round}-${n}-${NAMES.indexOf(name)}`;
    const mortal = name === 'killed' || name === 'drained' ? mortals[name] : undefined;
    const other = stay[(n + 1) % 2] as MeasuredInstance;
    const cookie = name === 'logged out' ? await other.signIn(`user-${n}`) : ofAll;
    const path = name === 'stopped' ? BOT_PATH.replace('helper', 'slow') : BOT_PATH;
    const body = messageBody({ text: name, customChannelId: id, customMessageId: id });
    const opened: RawClient[] = [];
    const say = ({ port }: MeasuredInstance, headers: readonly string[] = []) => {
      const client = rawClient(port, rawMessage({ cookie, body, path, headers: [CLOSES, ...headers] }));
      opened.push(client);
      return client;
    };
    const clients: RawClient[] = [];
    const write = (bytes: Buffer) => void streams.get(id)?.write(bytes);
    const message: Message = {
      ...{ id, clients, other, cookie, say, lost: mortal?.lost ?? (async () => {}) },
      emit: (...events) => write(Buffer.concat(events.map(chunk))),
      finish: (...events) => write(endOf(...events)),
      suspend: () =>
        other.post(`${path.replace('message/sse', 'message/suspend')}?custom_channel_id=${id}`, cookie),
    };
    try {
      for (const at of [mortal?.instance ?? (stay[n % 2] as MeasuredInstance), other]) {
        const client = say(at);
        clients.push(client);
        if (begins) await got(client, begins.at(-1) ?? '\r\n\r\n');
      }
      await act?.(message);
      for (const client of expected ? clients : []) await expectGot(client, expected as RegExp);
    } catch (error) {
      if (!(error instanceof RedisAway)) throw new Error(`${name}: ${error}`, { cause: error });
      timesAway++;
      for (const { socket } of opened) socket.destroy();
      // The others of this way wait for it.
      await mortal?.lost();
    }
    if (!expected) for (const { socket } of opened) socket.destroy();
  }
  const all = Array.from({ length: OF_EACH }, (_, n) => n);
  const endRuns = async (name: string) => {
    // Only what waits for the loss of an instance must be there together.
    if (ENDINGS[name] === lose) await Promise.all(all.map((n) => endRun(name, n)));
    else for (const n of all) await endRun(name, n);
  };
  await Promise.all(NAMES.map(endRuns));
  streams.clear();
}

/** What the instances and Redis have open. */
const openAt = async (instances: Two) => ({
  redis: await measureRedis(redis),
  instances: await Promise.all(instances.map((instance) => instance.open())),
});
type Open = Awaited<ReturnType<typeof openAt>>;
const isSame = (one: Open, other: Open) => JSON.stringify(one) === JSON.stringify(other);

/**
 * What they have open, once that equals `wanted` so many `times` in a row. Without `wanted`, it must be the same as the
 * time before. After `SETTLE_MS`, it is what they have then.
 */
async function settled(instances: Two, times: number, wanted?: Open): Promise<Open> {
  let last = wanted;
  const since = performance.now();
  for (let same = 0; ; await sleep(500)) {
    const open = await openAt(instances);
    same = last && isSame(open, last) ? same + 1 : 0;
    if (same === times || (wanted && performance.now() - since > SETTLE_MS)) return open;
    last = wanted ?? open;
  }
}

describeWithRedis('runs of all endings at two instances', () => {
  test(`leave nothing behind after ${RUNS} of them: no connection, subscription, key, socket, timer or memory`, async () => {
    upstream = await startRawUpstream(serve);
    redis = await startRedis();
    const stay = [await start(), await start()] as const;
    const memories = () => Promise.all(stay.map((instance) => instance.memory()));
    const cookie = await stay[0].signIn('ada');
    const before = await settled(stay, 4);
    // What is made once is there after this.
    await endRound(0, cookie, stay);
    expect(await settled(stay, 1, before)).toEqual(before);
    const memoryBefore = await memories();
    timesAway = 0;
    const rounds = Math.ceil(RUNS / ROUND);
    for (let round = 1; round <= rounds; round++) await endRound(round, cookie, stay);
    expect(await settled(stay, 1, before)).toEqual(before);
    // One pause of Redis can be met by all that are beside each other.
    expect(timesAway).toBeLessThan((rounds * ROUND) / 3);
    const memory = await memories();
    const told = { runs: rounds * ROUND, timesAway, before, memoryBefore, memory };
    process.stdout.write(`ended runs: ${JSON.stringify(told)}\n`);
    for (const [n, { objects, bytes }] of memory.entries()) {
      const first = memoryBefore[n] as (typeof memory)[number];
      // What the runs of one ending leave would be more: some timers are of what serves this question.
      for (const [name, count] of Object.entries(objects))
        expect(count).toBeLessThan((first.objects[name] ?? 0) + OF_EACH);
      expect(bytes - first.bytes).toBeLessThan(rounds * ROUND * LEFT_BYTES + BESIDES_BYTES);
    }
  });
});
