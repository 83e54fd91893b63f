import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { bodyOf, messageBody } from '../harness/clients/joining.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  expectOneRunEach,
  type JoinInstances,
  messageOf,
  startJoinInstances,
  textOf,
} from '../harness/relay/join-instances.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  startProcess,
  stopProcesses,
} from '../harness/relay/process.ts';
import { chunk, LAST_CHUNK, type RawRequest, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

/** What a relay answers that has no time for Redis, or Redis none for it, or that stops: nothing of the message has run. */
const REFUSED =
  /^HTTP\/1.1 503 [\s\S]*"code":"(session_store_unavailable|draining)".*"retryable":"(new|same) message"/;
/** A client says the message again after so long, in ms, as its `Retry-After` says, and so often. */
const AGAIN_MS = 1_000;
const MAX_TIMES = 60;
const LIMITS = { RATE_LIMIT: '1000', MAX_STREAMS_PER_USER: '2000', CLIENT_LIMIT_PER_SESSION: '1000000' };

/** A run of the field's shape: ids on kept messages only, or none at all. */
function eventsOf(text: string): readonly string[] {
  const event = (eventType: string, n: number) =>
    `data: ${JSON.stringify({ eventType: `asgard.${eventType}`, requestId: text, n })}\n\n`;
  const id = (n: number) => (text.startsWith('ids') ? `id: ${n}\n` : '');
  const part = (n: number) => [
    event('message.delta', 10 * n),
    event('message.delta', 10 * n + 1),
    id(n) + event('message.complete', 10 * n + 2),
  ];
  return [
    event('run.init', 0),
    ...[1, 2, 3].flatMap(part),
    event('message.delta', 99),
    event('run.done', 100),
  ];
}

/** The events after that with this id. */
function rest(text: string, id: string): readonly string[] {
  const events = eventsOf(text);
  return events.slice(events.findIndex((event) => event.startsWith(`id: ${id}\n`)) + 1);
}

async function emit(socket: Socket, events: readonly string[]): Promise<void> {
  await sleep(Math.random() * 100);
  socket.write(STREAM_HEAD);
  for (const event of events) {
    await sleep(Math.random() * 120);
    if (socket.destroyed) return;
    socket.write(chunk(event));
  }
  socket.write(LAST_CHUNK);
}

const idIn = (request: RawRequest) => request.all('last-event-id')[0];

/** Half of the texts of messages have answers with ids. */
const textsOf = (round: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, n) => `${n % 2 ? 'none' : 'ids'}-${round}-${n}`);

/** One instance in this process, which stays, and others that are lost. */
class LostInstances {
  readonly all: JoinInstances;
  /** How many requests were refused, and said again. */
  refusals = 0;
  private clients: RawClient[] = [];

  private constructor(all: JoinInstances) {
    this.all = all;
  }

  static async start(): Promise<LostInstances> {
    return new LostInstances(
      await startJoinInstances(1, LIMITS, (request, socket) => {
        const id = idIn(request);
        void emit(socket, id === undefined ? eventsOf(textOf(request)) : rest(textOf(request), id));
        return undefined;
      }),
    );
  }

  /** Starts an instance that can be lost. */
  async startHolder(): Promise<{ holder: RelayProcess; port: number }> {
    const { upstream, redis } = this.all;
    const holder = startProcess({
      folder: freshFolder({ 'users.json': '{"users":[]}' }),
      environment: {
        ...inFrontOf(upstream.url),
        ...{ PUBLIC_URL: 'http://app.example.com', REDIS_URL: redis.url, JOIN: 'on', ...LIMITS },
        ...{ SHUTDOWN_DELAY_MS: '0', SHUTDOWN_GRACE_MS: '300' },
      },
    });
    const port = await holder.listening();
    await holder.waitFor(/redis ready/);
    return { holder, port };
  }

  /** Says a message at an instance that can be lost. */
  sayAt(port: number, text: string): RawClient {
    const body = messageBody(messageOf(text));
    const { cookie } = this.all;
    return this.keep(rawClient(port, rawMessage({ cookie, body, headers: ['Connection: close'] })));
  }

  /** Says a message at the instance that stays. */
  say(text: string, headers: string[] = []): RawClient {
    return this.keep(this.all.say(0, messageOf(text), headers));
  }

  /** Says a message until it is not refused. Resolves with its client once that has a head of an answer. */
  async sayUntilTaken(say: () => RawClient): Promise<RawClient> {
    for (let times = 1; ; times++) {
      const client = say();
      await until(() => client.socket.destroyed || client.text().includes('\r\n\r\n'));
      if (!client.text().startsWith('HTTP/1.1 503')) return client;
      await client.closed;
      if (!REFUSED.test(client.text()) || times === MAX_TIMES) return client;
      this.refusals++;
      await sleep(AGAIN_MS);
    }
  }

  async close(): Promise<void> {
    for (const { socket } of this.clients) socket.destroy();
    await this.all.close();
  }

  private keep(client: RawClient): RawClient {
    this.clients.push(client);
    return client;
  }
}

/** Whether one of the answers has an id after which another instance can go on, and one without ids is not over. */
function areUnderWay(clients: readonly RawClient[]): boolean {
  const texts = clients.map((client) => client.text());
  const isCut = (text: string) => text.includes('run.init') && !text.includes('run.done');
  return texts.some((text) => /^id: /m.test(text)) && texts.some((text, n) => n % 2 === 1 && isCut(text));
}

type Verdict = 'whole' | 'told' | 'cut' | 'refused' | 'wrong';

/**
 * What a client has got: a whole answer, one that says that it is not whole, a connection that has broken, which says so
 * too, or a refusal of what has not run.
 */
async function verdictOf(client: RawClient, whole: string): Promise<Verdict> {
  await client.closed;
  const text = client.text();
  if (REFUSED.test(text)) return 'refused';
  const isChunked = /^Transfer-Encoding: chunked\r$/im.test(text);
  const { body, complete } = isChunked ? dechunk(text) : plainBody(text);
  if (!complete) return whole.startsWith(body) ? 'cut' : 'wrong';
  if (body === whole) return 'whole';
  const [events = '', error] = body.split('event: error');
  const isTold = /"code":"(answer_lost|run_over)"/.test(error ?? body);
  return isTold && (error === undefined || whole.startsWith(events)) ? 'told' : 'wrong';
}

function plainBody(text: string): { readonly body: string; readonly complete: boolean } {
  const at = text.indexOf('\r\n\r\n');
  const body = at < 0 ? '' : text.slice(at + 4);
  const length = /^Content-Length: (\d+)\r$/im.exec(text)?.[1];
  return length === String(body.length) ? { body, complete: true } : { body: '', complete: false };
}

jest.setTimeout(3_600_000);

/** How often an instance is lost, each time while it carries these messages. */
const kills = Number(process.env.KILLS ?? 201);
const MESSAGES = 8;
const PAUSED_MS = 10_000;
/** Some pauses are shorter than a lease, and some are longer, in ms. */
const aPause = () => sleep(1_000 + Math.random() * 8_000);

let instances: LostInstances;
afterEach(async () => {
  await stopProcesses();
  await instances.close();
});

/** The ways in which an instance is lost; each resolves when it is back, if it comes back. */
const WAYS: Readonly<Record<string, (holder: RelayProcess) => Promise<unknown>>> = {
  async 'kill -9'(holder) {
    holder.signal('SIGKILL');
  },
  async SIGTERM(holder) {
    holder.signal('SIGTERM');
  },
  async SIGSTOP(holder) {
    holder.signal('SIGSTOP');
    await aPause();
    holder.signal('SIGCONT');
  },
  async 'Redis paused'() {
    instances.all.redis.pause();
    await aPause();
    instances.all.redis.resume();
  },
};

type Counts = Partial<Record<Verdict, number>>;
/** What clients have got: those of the lost instance, and those that came again, by whether they had seen an id. */
interface Seen {
  readonly own: Counts;
  readonly again: Counts;
  readonly againAfterId: Counts;
  readonly againAfterRefusal: Counts;
  readonly withId: Counts;
}

const nothingSeen = (): Seen => ({ own: {}, again: {}, againAfterId: {}, againAfterRefusal: {}, withId: {} });

/** A message whose instance is lost: its own client, and one that says it again elsewhere, without and with an id. */
async function sayAgain(text: string, own: RawClient, seen: Seen): Promise<void> {
  const whole = eventsOf(text).join('');
  const count = async (counts: Counts, client: RawClient, expected: string) => {
    const verdict = await verdictOf(client, expected);
    if (verdict === 'wrong') throw new Error(`${text}: ${client.text()}`);
    counts[verdict] = (counts[verdict] ?? 0) + 1;
    return verdict;
  };
  const id = [...own.text().matchAll(/^id: (\d)\r?$/gm)].at(-1)?.[1];
  const again = await instances.sayUntilTaken(() => instances.say(text));
  const got = await count(id === undefined ? seen.again : seen.againAfterId, again, whole);
  if (id !== undefined) {
    const resumed = await instances.sayUntilTaken(() => instances.say(text, [`Last-Event-ID: ${id}`]));
    expect(await count(seen.withId, resumed, rest(text, id).join(''))).toBe('whole');
  }
  // What has not run at the one runs at the other.
  const ownGot = await count(seen.own, own, whole);
  if (ownGot === 'refused') seen.againAfterRefusal[got] = (seen.againAfterRefusal[got] ?? 0) + 1;
}

async function loseOne(way: string, round: string, isFirst: boolean, seen: Seen): Promise<void> {
  const { holder, port } = await instances.startHolder();
  const texts = textsOf(round, MESSAGES);
  let lost: readonly RawClient[];
  // The first moment leaves answers of both kinds; the others may come before any message has arrived.
  if (isFirst) {
    lost = await Promise.all(texts.map((text) => instances.sayUntilTaken(() => instances.sayAt(port, text))));
    await until(() => areUnderWay(lost));
  } else {
    lost = texts.map((text) => instances.sayAt(port, text));
    await sleep(Math.random() * 900);
  }
  const back = WAYS[way]?.(holder);
  await Promise.all(texts.map((text, n) => sayAgain(text, lost[n] as RawClient, seen)));
  await back;
  expectOneRunEach(instances.all);
  holder.signal('SIGKILL');
  await holder.exited;
}

describeWithRedis('instances that are lost', () => {
  test(`at ${kills} random moments leave whole answers or truthful ends, and no second run`, async () => {
    instances = await LostInstances.start();
    const ways = Object.keys(WAYS);
    const seen = Object.fromEntries(ways.map((way) => [way, nothingSeen()]));
    const lose = (way: string, round: number) =>
      loseOne(way, `${round}-${ways.indexOf(way)}`, round === 0, seen[way] as Seen);
    let lost = 0;
    try {
      for (; lost < kills; lost += ways.length) {
        // All instances have the same Redis.
        await Promise.all(ways.filter((way) => way !== 'Redis paused').map((way) => lose(way, lost)));
        await lose('Redis paused', lost);
      }
    } finally {
      process.stdout.write(
        `lost instances: ${JSON.stringify({ lost, refusals: instances.refusals, ...seen })}\n`,
      );
    }
    const { refusals } = instances;
    // One refusal of each message for each second without Redis is no fault; more would be an outage.
    expect(refusals).toBeLessThan(kills * MESSAGES * 10);
    for (const way of ways) expect(seen[way]?.withId.whole).toBeGreaterThan(0);
    expect(seen['kill -9']?.againAfterId.told).toBeGreaterThan(0);
  });

  test('for ten seconds, by SIGSTOP, and back: no second run, no reader with a hole', async () => {
    instances = await LostInstances.start();
    const { all } = instances;
    const { holder, port } = await instances.startHolder();
    const texts = textsOf('stop', MESSAGES);
    const readers = texts.map((text) => instances.sayUntilTaken(() => instances.sayAt(port, text)));
    await until(() => all.upstream.requests.length === MESSAGES);
    await sleep(Math.random() * 500);
    readers.push(...texts.map((text) => instances.sayUntilTaken(() => instances.say(text))));
    holder.signal('SIGSTOP');
    await sleep(PAUSED_MS);
    holder.signal('SIGCONT');
    for (const [n, reader] of readers.entries()) {
      const whole = eventsOf(texts[n % MESSAGES] as string).join('');
      expect(['whole', 'told']).toContain(await verdictOf(await reader, whole));
    }
    expectOneRunEach(instances.all);
  });
});

describeWithRedis('Redis away for ten seconds', () => {
  test('starts no second run, and leaves no reader with a hole', async () => {
    instances = await LostInstances.start();
    const { all } = instances;
    const { port } = await instances.startHolder();
    const texts = textsOf('away', MESSAGES);
    const carried = await Promise.all(
      texts.map((text) => instances.sayUntilTaken(() => instances.sayAt(port, text))),
    );
    expect(all.upstream.requests).toHaveLength(MESSAGES);
    const others = await Promise.all(texts.map((text) => instances.sayUntilTaken(() => instances.say(text))));
    // Who comes while Redis is away is refused, as the one below.
    await Promise.all(others.map((other) => other.waitFor('run.init')));
    await sleep(Math.random() * 500);
    all.redis.pause();
    await sleep(PAUSED_MS / 2);
    expect(await bodyOf(instances.say('refused'))).toContain('session_store_unavailable');
    await sleep(PAUSED_MS / 2);
    all.redis.resume();
    for (const [n, text] of texts.entries()) {
      const whole = eventsOf(text).join('');
      expect(await bodyOf(carried[n] as RawClient)).toBe(whole);
      expect(['whole', 'told']).toContain(await verdictOf(others[n] as RawClient, whole));
    }
    expectOneRunEach(instances.all);
  });
});
