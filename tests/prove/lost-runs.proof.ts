import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, messageBody } from '../support/joining.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  startProcess,
  stopProcesses,
} from '../support/process.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, type RawRequest, STREAM_HEAD } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import { until } from '../support/relay-and-upstream.ts';

jest.setTimeout(3_600_000);

/** How often an instance is killed, each time while it carries these messages. */
const kills = Number(process.env.KILLS ?? 200);
const MESSAGES = 8;
const PAUSED_MS = 10_000;
/** What a relay answers that has no time for Redis, or Redis none for it: nothing of the message has run. */
const REFUSED = /^HTTP\/1.1 503 [\s\S]*"code":"session_store_unavailable".*"retryable":"new message"/;
/** A client says the message again after so long, in ms, as its `Retry-After` says, and so often. */
const AGAIN_MS = 1_000;
const MAX_TIMES = 60;
const LIMITS = { RATE_LIMIT: '1000', MAX_STREAMS_PER_USER: '2000', CLIENT_LIMIT_PER_SESSION: '1000000' };

let all: JoinInstances;
let clients: RawClient[] = [];
/** How many requests were refused, and said again. */
let refusals = 0;
afterEach(async () => {
  for (const { socket } of clients) socket.destroy();
  clients = [];
  await stopProcesses();
  await all.close();
});

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

const textOf = ({ body }: RawRequest) => (JSON.parse(String(body)) as { text: string }).text;
const idIn = (request: RawRequest) => request.all('last-event-id')[0];

/** One instance in this process, which stays. */
async function start() {
  all = await startJoinInstances(1, LIMITS, (request, socket) => {
    const id = idIn(request);
    void emit(socket, id === undefined ? eventsOf(textOf(request)) : rest(textOf(request), id));
    return undefined;
  });
}

/** Starts an instance that can be lost. */
async function startHolder(): Promise<{ holder: RelayProcess; port: number }> {
  const holder = startProcess({
    folder: freshFolder({ 'users.json': '{"users":[]}' }),
    environment: {
      ...inFrontOf(all.upstream.url),
      ...{ PUBLIC_URL: 'http://app.example.com', REDIS_URL: all.redis.url, JOIN: 'on', ...LIMITS },
    },
  });
  const port = await holder.listening();
  await holder.waitFor(/redis ready/);
  return { holder, port };
}

const changes = (text: string) => ({
  text,
  customMessageId: `message-number-${text}`,
  customChannelId: text,
});

function sayAt(port: number, text: string): RawClient {
  const body = messageBody(changes(text));
  const client = rawClient(port, rawMessage({ cookie: all.cookie, body, headers: ['Connection: close'] }));
  clients.push(client);
  return client;
}

/** Says a message until it is not refused. Resolves with its client once that has a head of an answer. */
async function sayUntilTaken(say: () => RawClient): Promise<RawClient> {
  for (let times = 1; ; times++) {
    const client = say();
    await until(() => client.socket.destroyed || client.text().includes('\r\n\r\n'));
    if (!client.text().startsWith('HTTP/1.1 503')) return client;
    await client.closed;
    if (!REFUSED.test(client.text()) || times === MAX_TIMES) return client;
    refusals++;
    await sleep(AGAIN_MS);
  }
}

/** The whole answer of the instance that stays. */
async function answerOf(text: string, headers: readonly string[] = []): Promise<string> {
  return bodyOf(await sayUntilTaken(() => all.say(0, changes(text), headers)));
}

/** No message has run twice. */
function expectOneRunEach(): void {
  const counts = new Map<string, number>();
  for (const request of all.upstream.requests) {
    if (idIn(request) === undefined) counts.set(textOf(request), (counts.get(textOf(request)) ?? 0) + 1);
  }
  expect([...counts].filter(([, count]) => count > 1)).toEqual([]);
}

/** Whether one of the answers has an id after which another instance can go on, and one without ids is not over. */
function areUnderWay(clients: readonly RawClient[]): boolean {
  const texts = clients.map((client) => client.text());
  const isCut = (text: string) => text.includes('run.init') && !text.includes('run.done');
  return texts.some((text) => /^id: /m.test(text)) && texts.some((text, n) => n % 2 === 1 && isCut(text));
}

/** A whole answer, or one that says that it is not whole. */
function verdictOf(body: string, whole: string): 'whole' | 'told' | 'wrong' {
  if (body === whole) return 'whole';
  const [events = '', error] = body.split('event: error');
  const isTold = /"code":"(answer_lost|run_over)"/.test(error ?? body);
  return isTold && (error === undefined || whole.startsWith(events)) ? 'told' : 'wrong';
}

describeWithRedis('instances that are lost', () => {
  test(`at ${kills} random moments leave whole answers or truthful ends, and no second run`, async () => {
    await start();
    const verdicts = { whole: 0, told: 0 };
    let withId = 0;
    for (let kill = 0; kill < kills; kill++) {
      const { holder, port } = await startHolder();
      const texts = Array.from({ length: MESSAGES }, (_, n) => `${n % 2 ? 'none' : 'ids'}-${kill}-${n}`);
      let lost: readonly RawClient[];
      // The first moment leaves answers of both kinds; the others may come before any message has arrived.
      if (kill === 0) {
        lost = await Promise.all(texts.map((text) => sayUntilTaken(() => sayAt(port, text))));
        await until(() => areUnderWay(lost));
      } else {
        lost = texts.map((text) => sayAt(port, text));
        await sleep(Math.random() * 900);
      }
      holder.signal('SIGKILL');
      await Promise.all(lost.map(({ closed }) => closed));
      await Promise.all(
        texts.map(async (text, n) => {
          const seen = (lost[n] as RawClient).text();
          const id = [...seen.matchAll(/^id: (\d)\r?$/gm)].at(-1)?.[1];
          const whole = eventsOf(text).join('');
          const joined = await answerOf(text);
          const verdict = verdictOf(joined, whole);
          if (verdict === 'wrong' || (verdict === 'told' && id !== undefined))
            throw new Error(`${text} after id ${id}: ${joined}`);
          verdicts[verdict]++;
          if (id === undefined) return;
          withId++;
          const resumed = await answerOf(text, [`Last-Event-ID: ${id}`]);
          expect(resumed).toBe(rest(text, id).join(''));
        }),
      );
      expectOneRunEach();
    }
    process.stdout.write(`lost instances: ${JSON.stringify({ ...verdicts, withId, refusals })}\n`);
    // One refusal of each message, such as while a relay has no time for Redis, is no fault; more would be an outage.
    expect(refusals).toBeLessThan(kills * MESSAGES);
    expect(verdicts.whole).toBeGreaterThan(0);
    expect(verdicts.told).toBeGreaterThan(0);
  });

  test('for ten seconds, by SIGSTOP, and back: no second run, no reader with a hole', async () => {
    await start();
    const { holder, port } = await startHolder();
    const texts = Array.from({ length: MESSAGES }, (_, n) => `${n % 2 ? 'none' : 'ids'}-stop-${n}`);
    const readers = texts.map((text) => sayUntilTaken(() => sayAt(port, text)));
    await until(() => all.upstream.requests.length === MESSAGES);
    await sleep(Math.random() * 500);
    readers.push(...texts.map((text) => sayUntilTaken(() => all.say(0, changes(text)))));
    holder.signal('SIGSTOP');
    await sleep(PAUSED_MS);
    holder.signal('SIGCONT');
    for (const [n, reader] of readers.entries()) {
      const whole = eventsOf(texts[n % MESSAGES] as string).join('');
      expect(verdictOf(await bodyOf(await reader), whole)).not.toBe('wrong');
    }
    expectOneRunEach();
  });
});

describeWithRedis('Redis away for ten seconds', () => {
  test('starts no second run, and leaves no reader with a hole', async () => {
    await start();
    const { port } = await startHolder();
    const texts = Array.from({ length: MESSAGES }, (_, n) => `${n % 2 ? 'none' : 'ids'}-away-${n}`);
    const carried = await Promise.all(texts.map((text) => sayUntilTaken(() => sayAt(port, text))));
    expect(all.upstream.requests).toHaveLength(MESSAGES);
    const others = await Promise.all(texts.map((text) => sayUntilTaken(() => all.say(0, changes(text)))));
    // Who comes while Redis is away is refused, as the one below.
    await Promise.all(others.map((other) => other.waitFor('run.init')));
    await sleep(Math.random() * 500);
    all.redis.pause();
    await sleep(PAUSED_MS / 2);
    const refused = all.say(0, changes('refused'));
    expect(await bodyOf(refused)).toContain('session_store_unavailable');
    await sleep(PAUSED_MS / 2);
    all.redis.resume();
    for (const [n, text] of texts.entries()) {
      const whole = eventsOf(text).join('');
      expect(await bodyOf(carried[n] as RawClient)).toBe(whole);
      expect(verdictOf(await bodyOf(others[n] as RawClient), whole)).not.toBe('wrong');
    }
    expectOneRunEach();
  });
});
