import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from '@jest/globals';
import { messageBody } from '../clients/joining.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../clients/raw-client.ts';
import { chunk, LAST_CHUNK, type RawRequest, STREAM_HEAD } from '../service/raw-upstream.ts';
import { type JoinInstances, startJoinInstances } from './join-instances.ts';
import { freshFolder, inFrontOf, type RelayProcess, startProcess } from './process.ts';
import { until } from './relay-and-upstream.ts';

/** What a relay answers that has no time for Redis, or Redis none for it, or that stops: nothing of the message has run. */
const REFUSED =
  /^HTTP\/1.1 503 [\s\S]*"code":"(session_store_unavailable|draining)".*"retryable":"(new|same) message"/;
/** A client says the message again after so long, in ms, as its `Retry-After` says, and so often. */
const AGAIN_MS = 1_000;
const MAX_TIMES = 60;
const LIMITS = { RATE_LIMIT: '1000', MAX_STREAMS_PER_USER: '2000', CLIENT_LIMIT_PER_SESSION: '1000000' };

/** A run of the field's shape: ids on kept messages only, or none at all. */
export function eventsOf(text: string): readonly string[] {
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
export function rest(text: string, id: string): readonly string[] {
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

/** Half of the texts of messages have answers with ids. */
export const textsOf = (round: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, n) => `${n % 2 ? 'none' : 'ids'}-${round}-${n}`);

/** One instance in this process, which stays, and others that are lost. */
export class LostInstances {
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
    const body = messageBody(changes(text));
    const { cookie } = this.all;
    return this.keep(rawClient(port, rawMessage({ cookie, body, headers: ['Connection: close'] })));
  }

  /** Says a message at the instance that stays. */
  say(text: string, headers: readonly string[] = []): RawClient {
    return this.keep(this.all.say(0, changes(text), headers));
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

  /** No message has run twice. */
  expectOneRunEach(): void {
    const counts = new Map<string, number>();
    for (const request of this.all.upstream.requests) {
      if (idIn(request) === undefined) counts.set(textOf(request), (counts.get(textOf(request)) ?? 0) + 1);
    }
    expect([...counts].filter(([, count]) => count > 1)).toEqual([]);
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

const changes = (text: string) => ({
  text,
  customMessageId: `message-number-${text}`,
  customChannelId: text,
});

/** Whether one of the answers has an id after which another instance can go on, and one without ids is not over. */
export function areUnderWay(clients: readonly RawClient[]): boolean {
  const texts = clients.map((client) => client.text());
  const isCut = (text: string) => text.includes('run.init') && !text.includes('run.done');
  return texts.some((text) => /^id: /m.test(text)) && texts.some((text, n) => n % 2 === 1 && isCut(text));
}

export type Verdict = 'whole' | 'told' | 'cut' | 'refused' | 'wrong';

/**
 * What a client has got: a whole answer, one that says that it is not whole, a connection that has broken, which says so
 * too, or a refusal of what has not run.
 */
export async function verdictOf(client: RawClient, whole: string): Promise<Verdict> {
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
